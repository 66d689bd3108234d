package checks

import (
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// PagePart is a part of a Markdown page: some of its lines, and the command that
// they end with.
type PagePart struct {
	// Lines are the lines up to the command and with it.
	Lines []string
	// Command is without its "$ ", and may have several lines. It is empty in the
	// last part of a page.
	Command string
	// Line is where the command stands, and Fence the language of its block.
	Line  int
	Fence string
	// Shown is what the page shows that the command says.
	Shown []string
}

// ReadPage finds the commands of a page. A command is a line of a fenced block that
// begins with "$ ", with those that follow a backslash at its end. What it says
// follows, up to the next command, a remark, which is a line that begins with
// "# ", or the end of the block.
func ReadPage(text string) []PagePart {
	var parts []PagePart
	var part PagePart
	lines := strings.Split(text, "\n")
	fence, fenced := "", false
	for i := 0; i < len(lines); i++ {
		part.Lines = append(part.Lines, lines[i])
		if language, isFence := strings.CutPrefix(lines[i], "```"); isFence {
			fence, fenced = language, !fenced
			continue
		}
		command, isCommand := strings.CutPrefix(lines[i], "$ ")
		if !fenced || !isCommand {
			continue
		}
		part.Line, part.Fence = i+1, fence
		for strings.HasSuffix(command, `\`) && i+1 < len(lines) {
			i++
			part.Lines = append(part.Lines, lines[i])
			command += "\n" + lines[i]
		}
		part.Command = command
		for i+1 < len(lines) && !endsAnswer(lines[i+1]) {
			i++
			part.Shown = append(part.Shown, lines[i])
		}
		parts, part = append(parts, part), PagePart{}
	}
	return append(parts, part)
}

func endsAnswer(line string) bool {
	return strings.HasPrefix(line, "$ ") || strings.HasPrefix(line, "# ") || strings.HasPrefix(line, "```")
}

// elsewhere are the commands that no test runs as they stand in a page, and what
// runs them instead: a test, as "./tests/demo TestName", or CI, by what stands in
// .ci/run.
var elsewhere = []struct{ command, test, ci string }{
	// Both go on for minutes, or until Ctrl-C.
	{command: "make demo", test: "./tests/demo TestTheDemoHandlesItsFaultsAndLeavesNothingRunningAfterCtrlC"},
	{command: "make test", ci: "make test"},
}

// makeTarget is a target of the Makefile as a page names it.
var makeTarget = regexp.MustCompile("(?:`|\\$ )make ([a-z][a-z0-9-]*)")

// Pages lists the pages whose commands have to be run, below the root of the clone.
func Pages(root string) ([]string, error) {
	pages := []string{"README.md", "CONTRIBUTING.md"}
	found, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		return nil, err
	}
	for _, path := range found {
		pages = append(pages, "docs/"+filepath.Base(path))
	}
	return pages, nil
}

// FindRunPages maps each page that a test runs through tests/pages to the test. The
// page's path has to be written out in the test function itself.
func FindRunPages(root string) (map[string]Test, error) {
	run := map[string]Test{}
	var failed error
	err := eachFile(root, func(path string, file *ast.File, set *token.FileSet) {
		if !strings.HasSuffix(path, "_test.go") {
			return
		}
		for _, declaration := range file.Decls {
			function, ok := declaration.(*ast.FuncDecl)
			if !ok {
				continue
			}
			test := Test{Package: "./" + filepath.ToSlash(filepath.Dir(path)), Name: function.Name.Name}
			ast.Inspect(function, func(node ast.Node) bool {
				call, ok := node.(*ast.CallExpr)
				if !ok || !isRunOfPage(call) {
					return true
				}
				page := pathOfPage(call)
				if page == "" || function.Recv != nil || !isTest(test.Name) {
					failed = fmt.Errorf("%s:%d: want pages.Run in a test function, with the page's Path written out", path, set.Position(call.Pos()).Line)
					return false
				}
				run[page] = test
				return false
			})
		}
	})
	if err != nil {
		return nil, err
	}
	return run, failed
}

// isRunOfPage tells a call pages.Run(…).
func isRunOfPage(call *ast.CallExpr) bool {
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || selector.Sel.Name != "Run" {
		return false
	}
	pkg, ok := selector.X.(*ast.Ident)
	return ok && pkg.Name == "pages"
}

// pathOfPage is the Path of the pages.Page that the call is given, if it is written
// out there.
func pathOfPage(call *ast.CallExpr) string {
	if len(call.Args) != 2 {
		return ""
	}
	page, ok := call.Args[1].(*ast.CompositeLit)
	if !ok {
		return ""
	}
	for _, element := range page.Elts {
		pair, ok := element.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		if key, ok := pair.Key.(*ast.Ident); !ok || key.Name != "Path" {
			continue
		}
		if literal, ok := pair.Value.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			path, err := strconv.Unquote(literal.Value)
			if err != nil {
				return ""
			}
			return path
		}
	}
	return ""
}

// Unrun lists the commands of the pages that nothing runs, and what else is wrong
// with how they are run.
func Unrun(root string, tests []Test) ([]string, error) {
	pages, err := Pages(root)
	if err != nil {
		return nil, err
	}
	run, err := FindRunPages(root)
	if err != nil {
		return nil, err
	}
	ci, err := os.ReadFile(filepath.Join(root, ".ci", "run"))
	if err != nil {
		return nil, err
	}
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		return nil, err
	}
	var wrong []string
	for page, test := range run {
		if !slices.Contains(pages, page) {
			wrong = append(wrong, fmt.Sprintf("%s runs %s, which is none of the pages", test, page))
		}
	}
	shown := map[string]bool{}
	for _, page := range pages {
		text, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			return nil, err
		}
		for _, named := range makeTarget.FindAllStringSubmatch(string(text), -1) {
			if !strings.Contains("\n"+string(makefile), "\n"+named[1]+":") {
				wrong = append(wrong, fmt.Sprintf("%s: the Makefile has no target %s", page, named[1]))
			}
		}
		for _, part := range ReadPage(string(text)) {
			if part.Command == "" {
				continue
			}
			if part.Fence != "console" {
				wrong = append(wrong, fmt.Sprintf("%s:%d: the block with `$ %s` isn't marked as console", page, part.Line, part.Command))
			}
			command, _, _ := strings.Cut(part.Command, "  #")
			command = strings.TrimSpace(command)
			shown[command] = true
			if _, ok := run[page]; !ok && !runElsewhere(command) {
				wrong = append(wrong, fmt.Sprintf("%s:%d: nothing runs `$ %s`: run the page in a test with pages.Run, or name in tests/checks/page.go what runs the command", page, part.Line, command))
			}
		}
	}
	for _, e := range elsewhere {
		switch {
		case !shown[e.command]:
			wrong = append(wrong, fmt.Sprintf("tests/checks/page.go: no page shows `$ %s` any more", e.command))
		case e.test != "" && !slices.ContainsFunc(tests, func(t Test) bool { return t.String() == e.test }):
			wrong = append(wrong, fmt.Sprintf("tests/checks/page.go: there is no test %s that runs `$ %s`", e.test, e.command))
		case e.ci != "" && !strings.Contains(string(ci), " "+e.ci+"\n"):
			wrong = append(wrong, fmt.Sprintf("tests/checks/page.go: .ci/run has no step that ends with %q", e.ci))
		case e.test == "" && e.ci == "":
			wrong = append(wrong, fmt.Sprintf("tests/checks/page.go: it isn't said what runs `$ %s`", e.command))
		}
	}
	slices.Sort(wrong)
	return wrong, nil
}

func runElsewhere(command string) bool {
	for _, e := range elsewhere {
		if e.command == command {
			return true
		}
	}
	return false
}
