package main

import (
	"strings"
	"testing"
)

func TestTheSumSaysWhatFailed(t *testing.T) {
	for name, tc := range map[string]struct {
		lines []string
		want  string
		code  int
	}{
		"all well": {
			[]string{`{"Action":"start","Package":"p"}`, `{"Action":"pass","Package":"p","Test":"TestA"}`, `{"Action":"pass","Package":"p"}`},
			"1 passed, 0 failed\n", 0,
		},
		"a test fails, and its package with it": {
			[]string{`{"Action":"start","Package":"p"}`, `{"Action":"fail","Package":"p","Test":"TestA/one"}`, `{"Action":"fail","Package":"p","Test":"TestA"}`, `{"Action":"fail","Package":"p"}`},
			"FAILED p TestA\nFAILED p TestA/one\n0 passed, 2 failed\n", 1,
		},
		"a package that doesn't build": {
			[]string{`{"ImportPath":"p","Action":"build-fail"}`, `{"Action":"start","Package":"p"}`, `{"Action":"fail","Package":"p","FailedBuild":"p"}`, `{"Action":"pass","Package":"q","Test":"TestA"}`},
			"FAILED p\n1 passed, 1 failed\n", 1,
		},
		"a run that was cut off": {
			[]string{`{"Action":"start","Package":"p"}`, `{"Action":"pass","Package":"p","Test":"TestA"}`},
			"FAILED p did not end\n1 passed, 1 failed\n", 1,
		},
		"what was skipped is said": {
			[]string{`{"Action":"skip","Package":"p","Test":"TestA"}`, `{"Action":"pass","Package":"p","Test":"TestB"}`},
			"1 skipped\n1 passed, 0 failed\n", 0,
		},
		"nothing ran": {nil, "0 passed, 0 failed\n", 1},
	} {
		t.Run(name, func(t *testing.T) {
			sum := tally{open: map[string]bool{}, faulty: map[string]bool{}}
			if err := sum.add(strings.NewReader(strings.Join(tc.lines, "\n"))); err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			if code := sum.report(&out); code != tc.code || out.String() != tc.want {
				t.Errorf("says %q with exit code %d, want %q with %d", out.String(), code, tc.want, tc.code)
			}
		})
	}
}
