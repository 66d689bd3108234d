package kube_test

import (
	"testing"

	"github.com/sickbay-dev/sickbay/pkg/kube"
)

func TestEveryAPIThatIsSpokenHasAVersion(t *testing.T) {
	all := kube.APIs()
	if len(all) < 7 {
		t.Errorf("only %+v", all)
	}
	for _, api := range all {
		if len(api.Versions) == 0 {
			t.Errorf("%s of group %q has no version", api.Resource, api.Group)
		}
	}
}
