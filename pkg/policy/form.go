package policy

// This file says what texts have to look like that are no choice of a few.

import (
	"fmt"
	"regexp"
	"strings"
)

// form is what a text has to look like.
type form struct {
	// allowed says it in words, of one; many of several, in a list.
	allowed, many string
	fits          func(text string) bool
}

// form is what a text of the field has to look like.
func (f field) form() form {
	switch f.tag.Get("form") {
	case "class":
		return form{allowed: "the name of a DeviceClass such as gpu.example.com", fits: isClass}
	case "image":
		return form{allowed: "an image such as registry.example.com/tools/diag:1.2 or one with @sha256: and its digest", fits: isImage}
	}
	return form{allowed: "a text", fits: func(string) bool { return true }}
}

// item is what an entry of the field's list has to look like.
func (f field) item() form {
	never := f.tag.Get("never")
	switch f.tag.Get("items") {
	case "condition":
		return form{"a condition's type such as KernelDeadlock", "condition types such as KernelDeadlock, without " + never, isWord}
	case "taint":
		return form{"a taint's key such as gpu.example.com/lost", fmt.Sprintf("taint keys such as gpu.example.com/lost, without those that begin with %s", never), isWord}
	}
	return form{"a text in quotes, not an empty one", "texts", isText}
}

// once tells whether an entry may stand in the field's list only once.
func (f field) once() bool { return f.tag.Get("items") != "text" }

// word is a condition's type or a taint's key: a word, with a DNS name before it or without.
var word = regexp.MustCompile(`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`)

func isWord(text string) bool { return len(text) <= maxName && word.MatchString(text) }

// isClass is true for what can be the name of a DeviceClass: a DNS name.
func isClass(text string) bool {
	return len(text) <= 253 && !strings.Contains(text, "/") && name.MatchString(text)
}

// image is how container runtimes name one (github.com/distribution/reference): a registry
// perhaps, a path in small letters, a tag and a digest.
var image = regexp.MustCompile(`^([A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?(:[0-9]{1,5})?/)?[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*(/[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*)*(:[A-Za-z0-9_][-A-Za-z0-9_.]{0,127})?(@sha256:[0-9a-f]{64})?$`)

func isImage(text string) bool { return len(text) <= 512 && image.MatchString(text) }

// maxArgument bounds one argument: a short script fits in.
const maxArgument = 4096

func isText(text string) bool {
	return text != "" && len(text) <= maxArgument && !strings.ContainsRune(text, 0)
}
