package config

import (
	"fmt"
	"os"

	"sigs.k8s.io/yaml"

	"github.com/sickbay-dev/sickbay/pkg/reason"
)

// Reasons says where the site's reasons are.
type Reasons struct {
	File string `split_words:"true" form:"file" desc:"YAML or JSON file with the site's reasons, laid over the built-in catalogue (docs/reasons.md). Starter and workers need the same one."`
}

// Catalogue returns the built-in catalogue with the site's file over it. Errors
// name the file and everything that is wrong in it, and wrap ErrConfig.
func (r Reasons) Catalogue() (*reason.Catalogue, error) {
	if r.File == "" {
		return reason.Builtin(), nil
	}
	catalogue, err := catalogueWith(r.File)
	if err != nil {
		return nil, wrong(fmt.Errorf("SICKBAY_REASONS_FILE=%q: %w", r.File, err))
	}
	return catalogue, nil
}

func catalogueWith(path string) (*reason.Catalogue, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	// Strict, because YAML takes a key that stands twice without a word and
	// JSON can't show it any more.
	document, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, err
	}
	overrides, err := reason.Parse(document)
	if err != nil {
		return nil, err
	}
	return reason.Builtin().With(overrides)
}

// check reads the file, so that what is wrong in it is reported with the rest.
func (r Reasons) check() []error {
	_, err := r.Catalogue()
	if err == nil {
		return nil
	}
	return []error{err}
}
