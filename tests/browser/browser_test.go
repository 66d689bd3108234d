package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/sickbay-dev/sickbay/tests/stack"
)

// What can be read is what a person would see: text that a script adds late and
// that stands in a frame, and nothing that is hidden. A page that asks for anything
// beyond this machine doesn't get it, and is told of.
func TestWhatIsReadIsWhatIsShownAndNothingComesFromOutside(t *testing.T) {
	Need(t, false)
	b := Start(t, stack.Start(t, stack.Options{}))
	site := http.NewServeMux()
	site.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `<p>in the page</p><p style="display:none">in a hidden one</p>
			<iframe src="/frame" sandbox="allow-same-origin"></iframe>
			<img src="http://outside.invalid/picture.png">
			<script>setTimeout(() => document.body.append(localStorage.getItem("late")), 200)</script>`)
	})
	site.HandleFunc("GET /frame", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `<p>in the frame</p>`)
	})
	server := httptest.NewServer(site)
	defer server.Close()

	got, err := b.ask(t, Page{URL: server.URL, Until: []string{"in the page", "in the frame", "much later"}, Storage: map[string]string{"late": "much later"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Missing) > 0 || strings.Contains(got.Text, "hidden") {
		t.Errorf("missing %q in\n%s", got.Missing, got.Text)
	}
	if !slices.Contains(got.Outside, "http://outside.invalid/picture.png") {
		t.Errorf("outside %q, want the picture's address", got.Outside)
	}
}
