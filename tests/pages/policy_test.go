package pages_test

import (
	"testing"

	"github.com/sickbay-dev/sickbay/tests/pages"
	"github.com/sickbay-dev/sickbay/tests/product"
)

// The commands of the page about the policy do what it shows.
func TestThePolicyPagesCommandsDoWhatItShows(t *testing.T) {
	binary, err := product.Shared()
	if err != nil {
		t.Fatal(err)
	}
	pages.Run(t, pages.Page{Path: "docs/policy.md", Dir: t.TempDir(), Env: pages.Terminal(t, binary), Update: *update})
}
