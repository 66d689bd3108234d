// Package browser opens pages in a real Chromium without a window, and says what
// is to be read on them.
//
// It owns how Chromium is found, how what drives it (playwright-core, by Node) is
// installed, and that no page gets anything from beyond this machine. It must
// never know what a page is about.
package browser

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/tests/stack"
)

// ciVariable is set where everything has to be there: nothing is skipped then.
const ciVariable = "SICKBAY_STACK_CI_RUN"

// Browser is a Chromium that runs as a process of a stack. It shows one page at a
// time.
type Browser struct {
	address string
}

// Step is what a person does on a page; one of the four.
type Step struct {
	// Click is the text of what is clicked, or a button's name.
	Click string `json:"click,omitempty"`
	// Type is typed into the field whose label is Into.
	Into string `json:"into,omitempty"`
	Type string `json:"type,omitempty"`
	// See is a text that is waited for before the next step.
	See string `json:"see,omitempty"`
	// Press is a key.
	Press string `json:"press,omitempty"`
}

// Page is a page to open.
type Page struct {
	URL string `json:"url"`
	// Steps are done on the page before anything is read.
	Steps []Step `json:"steps,omitempty"`
	// Until are the texts that are waited for: all of them have to be readable.
	Until []string `json:"until"`
	// Storage is what the browser keeps for the page's site, for what a person
	// would have set up there before.
	Storage map[string]string `json:"storage,omitempty"`
	// Height is the window's, 800 if nothing is said.
	Height int `json:"height,omitempty"`
	// Screenshot is the file to write a picture to, without so much of the window at
	// its left and its top.
	Screenshot string `json:"screenshot,omitempty"`
	Left       int    `json:"left,omitempty"`
	Top        int    `json:"top,omitempty"`
}

// Need skips the test where a program is missing, with which it is and how to get
// it. With always, and in CI, the test fails instead.
func Need(t testing.TB, always bool) {
	t.Helper()
	_, err := find()
	switch {
	case err == nil:
	case always || os.Getenv(ciVariable) != "":
		t.Fatal(err)
	default:
		t.Skip(err)
	}
}

// Start runs a Chromium with a stack, and ends with it. What it takes has to be
// there: see Need.
func Start(t testing.TB, st *stack.Stack) *Browser {
	t.Helper()
	programs, err := find()
	if err != nil {
		t.Fatal(err)
	}
	script, err := install(t.Context(), programs.npm)
	if err != nil {
		t.Fatal(err)
	}
	port, err := st.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	b := &Browser{address: fmt.Sprintf("http://127.0.0.1:%d/", port)}
	err = st.StartProcess(t.Context(), stack.Process{
		Name: "browser", Path: programs.node, Args: []string{script, fmt.Sprint(port), programs.chromium},
		Ready: stack.Answers(b.address),
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// within is how long a page may take to show what it is waited for.
const within = 30 * time.Second

// Read opens a page and returns all that can be read on it once the texts that it
// is waited for are there. It fails the test if they don't come, and if the page
// asks for anything that isn't on this machine.
func (b *Browser) Read(t testing.TB, p Page) string {
	t.Helper()
	got, err := b.ask(t, p)
	if err != nil {
		t.Fatalf("open %s: %v", p.URL, err)
	}
	if len(got.Outside) > 0 {
		t.Errorf("%s asks for what is not on this machine:\n%s", p.URL, strings.Join(got.Outside, "\n"))
	}
	if len(got.Missing) > 0 {
		t.Fatalf("%s doesn't show %q within %s; it shows\n%s", p.URL, got.Missing, within, got.Text)
	}
	return got.Text
}

// seen is what became of a page.
type seen struct {
	Text    string   `json:"text"`
	Missing []string `json:"missing"`
	Outside []string `json:"outside"`
	Error   string   `json:"error"`
}

func (b *Browser) ask(t testing.TB, p Page) (seen, error) {
	body, err := json.Marshal(struct {
		Page
		Within int64 `json:"within"`
	}{p, within.Milliseconds()})
	if err != nil {
		return seen{}, err
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.address, bytes.NewReader(body))
	if err != nil {
		return seen{}, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return seen{}, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return seen{}, err
	}
	var got seen
	if err := json.Unmarshal(answer, &got); err != nil {
		return seen{}, fmt.Errorf("%w: %s", err, answer)
	}
	if got.Error != "" {
		return seen{}, fmt.Errorf("%s", got.Error)
	}
	return got, nil
}
