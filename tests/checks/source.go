package checks

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Test is a test function of one of the repository's modules.
type Test struct {
	// Package is its folder as the go command takes it from the root: "./pkg/device".
	Package string
	Name    string
	// Numbers are the requirements that its doc comment carries.
	Numbers []string
	// Cases are the reported cases that it names.
	Cases []string
}

// String is the test as the table and the breaks name it.
func (t Test) String() string { return t.Package + " " + t.Name }

func (t Test) numbers() []string { return t.Numbers }
func (t Test) cases() []string   { return t.Cases }

// NeedsStack tells whether the test may need the development stack: all of the
// module under tests/ may.
func (t Test) NeedsStack() bool {
	return t.Package == "./tests" || strings.HasPrefix(t.Package, "./tests/")
}

// Root finds the root of the clone from the working directory upwards.
func Root() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "tests", "parts")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no repository in %s or above", start)
		}
	}
}

// FindTests parses every test file of the clone.
func FindTests(root string) ([]Test, error) {
	var tests []Test
	err := eachFile(root, func(path string, file *ast.File, _ *token.FileSet) {
		if !strings.HasSuffix(path, "_test.go") {
			return
		}
		for _, declaration := range file.Decls {
			function, ok := declaration.(*ast.FuncDecl)
			if !ok || function.Recv != nil || !isTest(function.Name.Name) {
				continue
			}
			tests = append(tests, Test{
				Package: "./" + filepath.ToSlash(filepath.Dir(path)),
				Name:    function.Name.Name,
				Numbers: numbersIn(function.Doc.Text()),
				Cases:   casesIn(function.Doc.Text()),
			})
		}
	})
	return tests, err
}

// isTest tells a function that the go command runs as a test.
func isTest(name string) bool {
	return name != "TestMain" && (strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "Fuzz"))
}

// FindNumbers lists the places in code that isn't a test where a requirement's
// number stands in a comment or a text: the numbers belong to the tests.
func FindNumbers(root string) ([]string, error) {
	var places []string
	err := eachFile(root, func(path string, file *ast.File, set *token.FileSet) {
		if strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "tests/checks/") {
			return
		}
		report := func(at token.Pos, text string) {
			for _, number := range numbersIn(text) {
				places = append(places, fmt.Sprintf("%s:%d: %s", path, set.Position(at).Line, number))
			}
		}
		for _, group := range file.Comments {
			for _, comment := range group.List {
				report(comment.Pos(), comment.Text)
			}
		}
		ast.Inspect(file, func(node ast.Node) bool {
			if literal, ok := node.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				report(literal.Pos(), literal.Value)
			}
			return true
		})
	})
	return places, err
}

// eachFile parses every Go file of the clone. Paths are relative to the root.
func eachFile(root string, visit func(path string, file *ast.File, set *token.FileSet)) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() {
			if path != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "bin") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, parser.ParseComments)
		if err != nil {
			return fmt.Errorf("parse %s: %w", path, err)
		}
		relative, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		visit(filepath.ToSlash(relative), file, set)
		return nil
	})
}
