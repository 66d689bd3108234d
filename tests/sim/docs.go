package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Where the page, its pictures and the comparison go, below the folder of the docs.
const (
	pagePath    = "policy-simulation.md"
	policyPath  = "policy.md"
	picturePath = "images"
)

// What the comparison stands between in policy.md.
const (
	briefStart = "<!-- The comparison is made by the simulation: make sim -->\n\n"
	briefEnd   = "\n<!-- end of the comparison -->\n"
)

// write writes the page, its pictures and the comparison.
func write(docs string, f findings) error {
	path := filepath.Join(docs, policyPath)
	policies, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the page of the policy: %w", err)
	}
	before, there, err := cut(string(policies))
	if err != nil {
		return err
	}
	text := before + briefStart + f.brief() + strings.TrimPrefix(string(policies), before+briefStart+there)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return fmt.Errorf("write the page of the policy: %w", err)
	}
	if err := os.WriteFile(filepath.Join(docs, pagePath), []byte(f.page()), 0o644); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	for name, picture := range f.pictures() {
		if err := os.WriteFile(filepath.Join(docs, picturePath, name), []byte(picture), 0o644); err != nil {
			return fmt.Errorf("write a picture: %w", err)
		}
	}
	return nil
}

// cut finds the comparison in the page of the policy, and what stands before it.
func cut(text string) (before, brief string, err error) {
	before, rest, found := strings.Cut(text, briefStart)
	brief, _, ended := strings.Cut(rest, briefEnd)
	if !found || !ended {
		return "", "", fmt.Errorf("%s: want the comparison between %q and %q", policyPath, strings.TrimSpace(briefStart), strings.TrimSpace(briefEnd))
	}
	return before, brief, nil
}
