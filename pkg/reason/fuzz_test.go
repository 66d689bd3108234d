package reason_test

import (
	"regexp"
	"testing"

	"github.com/sickbay-dev/sickbay/pkg/reason"
)

var labelValue = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)

// checkMatch asserts what holds for every answer of every catalogue.
func checkMatch(t *testing.T, c *reason.Catalogue, driver, message string) {
	t.Helper()
	m := c.Match(driver, message)
	if again := c.Match(driver, message); again != m {
		t.Fatalf("%q of %q: %+v, then %+v", message, driver, m, again)
	}
	if !labelValue.MatchString(string(m.Code)) {
		t.Fatalf("%q of %q: code %q is no label value", message, driver, m.Code)
	}
	if m.Severity < reason.SeverityNote || m.Severity > reason.SeverityFatal {
		t.Fatalf("%q of %q: severity %d", message, driver, m.Severity)
	}
	if m.Action == "" || m.Closes == "" || m.Scope == "" || m.Rule == "" || m.Catalogue != c.Version() {
		t.Fatalf("%q of %q: incomplete: %+v", message, driver, m)
	}
	// Said twice is said once.
	if twice := c.Match(driver, message+"; "+message); twice != m {
		t.Fatalf("%q of %q: %+v, said twice %+v", message, driver, m, twice)
	}
}

// Q7. Whatever a driver says gets one complete answer, the same each time.
func FuzzMatch(f *testing.F) {
	for _, message := range []string{
		"", ";", "XID 79: GPU has fallen off the bus", "Xid (PCI:0000:5e:00): 31, pid=1", "xid48; ecc", "Xids 48, 63 and 64",
		"GPU is lost", "SXid (PCI:0000:c3:00.0): 12028", "xid 9999", "Xid (", "xids 1,", "xid\x00 79", "\xff\xfexid79",
		"Xid (PCI:0008:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
	} {
		f.Add("gpu.nvidia.com", message)
		f.Add("", message)
	}
	builtin := reason.Builtin()
	overrides, err := reason.Parse([]byte(`{"version":"s","enable":[{"xids":[13]}],"disable":[{"codes":["XidGspError"]}],
		"rules":[{"name":"a","drivers":["g*"],"message":"(?i)ecc","code":"A","severity":"minor","action":"watch"}]}`))
	if err != nil {
		f.Fatal(err)
	}
	site, err := builtin.With(overrides)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, driver, message string) {
		checkMatch(t, builtin, driver, message)
		checkMatch(t, site, driver, message)
	})
}

// Q7. Whatever a site writes is refused, or gives a catalogue that has an answer
// to everything.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		`{}`, `[]`, `{"version":"1"}`, `{"version":"1","enable":[{"xids":[13]}],"disable":[{"all":true}]}`,
		`{"version":"1","rules":[{"name":"a","xids":[1],"message":"x","code":"A","severity":"major","action":"quarantine","closes":"reset","scope":"chip"}]}`,
		`{"version":"1","defaults":{"unrecognizedXid":{"severity":"note","action":"ignore"},"withoutMessage":{"severity":"fatal","action":"suspect","closes":"repair","scope":"chip"}}}`,
		`{"version":"1","version":"2","rules":[{}]}`, `{"rules":[[]]}`, "{\"version\":\"\xff\"}",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		overrides, err := reason.Parse(text)
		if err != nil {
			return
		}
		catalogue, err := reason.Builtin().With(overrides)
		if err != nil {
			return
		}
		for _, message := range []string{"", "XID 79", "xid 9999", "x", "flux"} {
			checkMatch(t, catalogue, "gpu.nvidia.com", message)
		}
	})
}
