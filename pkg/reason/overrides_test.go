package reason_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/sickbay-dev/sickbay/pkg/reason"
)

func with(t *testing.T, text string) *reason.Catalogue {
	t.Helper()
	overrides, err := reason.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	catalogue, err := reason.Builtin().With(overrides)
	if err != nil {
		t.Fatal(err)
	}
	return catalogue
}

// Q7. Case 10, "explicit enable beats disable", and the whole precedence: enable,
// disable, the site's rules, the builtin ones, the defaults. The match says which
// of them decided, and that the site's set was in force.
func TestTheSiteOverridesTheCatalogueInTheDocumentedOrder(t *testing.T) {
	const rules = `{"version":"site-4","rules":[
		{"name":"own-31","xids":[31],"code":"SitePageFault","severity":"minor","action":"watch"},
		{"name":"simulated","message":"simulated","code":"SiteSimulated","severity":"note","action":"ignore"},
		{"name":"own-9999","xids":[9999],"drivers":["gpu.nvidia.com"],"code":"SiteNewXid","severity":"major","action":"quarantine","closes":"operator","scope":"chip"},
		{"name":"amd-ecc","drivers":["*.amd.com"],"message":"(?i)uncorrectable ecc","code":"AmdEcc","severity":"fatal","action":"quarantine","closes":"repair","scope":"chip"}]`
	tests := map[string]struct {
		site            string
		driver, message string
		rule            string
		action          reason.Action
		severity        reason.Severity
	}{
		"a builtin rule counts where the site says nothing": {
			rules + `}`, nvidia, "XID 79", "nvidia/xid-79", reason.ActionQuarantine, reason.SeverityFatal},
		"a site's rule beats the builtin one for the same Xid": {
			rules + `}`, nvidia, "XID 31", "site/own-31", reason.ActionWatch, reason.SeverityMinor},
		"a site's rule beats the default for an unlisted Xid": {
			rules + `}`, nvidia, "XID 9999", "site/own-9999", reason.ActionQuarantine, reason.SeverityMajor},
		"a site's rule for one driver leaves the others alone": {
			rules + `}`, "gpu.example.com", "XID 9999", "default/unrecognized-xid", reason.ActionSuspect, reason.SeverityMajor},
		"a site's words for a text beat what the table reads out of it": {
			rules + `}`, nvidia, "simulated XID 79", "site/simulated", reason.ActionIgnore, reason.SeverityNote},
		"a driver is found by a pattern": {
			rules + `}`, "gpu.amd.com", "Uncorrectable ECC in HBM", "site/amd-ecc", reason.ActionQuarantine, reason.SeverityFatal},
		"a pattern that doesn't fit another driver leaves it to the default": {
			rules + `}`, "gpu.example.com", "Uncorrectable ECC in HBM", "default/unrecognized-message", reason.ActionQuarantine, reason.SeverityMajor},
		"disable beats a builtin rule": {
			rules + `,"disable":[{"xids":[63]}]}`, nvidia, "XID 63", "site/disable(nvidia/xid-63)", reason.ActionIgnore, reason.SeverityNote},
		"disable beats a site's rule": {
			rules + `,"disable":[{"codes":["SiteNewXid"]}]}`, nvidia, "XID 9999", "site/disable(site/own-9999)", reason.ActionIgnore, reason.SeverityNote},
		"disable of one driver leaves the others alone": {
			rules + `,"disable":[{"drivers":["gpu.example.com"],"all":true}]}`, nvidia, "XID 63", "nvidia/xid-63", reason.ActionQuarantine, reason.SeverityMinor},
		"enable beats disable": {
			rules + `,"enable":[{"xids":[13]}],"disable":[{"xids":[13]}]}`, nvidia, "XID 13", "site/enable(nvidia/xid-13)", reason.ActionQuarantine, reason.SeverityMajor},
		"enable of one Xid beats disable of all": {
			rules + `,"enable":[{"xids":[48]}],"disable":[{"all":true}]}`, nvidia, "XID 48", "site/enable(nvidia/xid-48)", reason.ActionQuarantine, reason.SeverityMajor},
		"disable of all reaches the defaults": {
			rules + `,"enable":[{"xids":[48]}],"disable":[{"all":true}]}`, nvidia, "flux", "site/disable(default/unrecognized-message)", reason.ActionIgnore, reason.SeverityNote},
		"enable by code makes an application's error a fault of the device": {
			rules + `,"enable":[{"codes":["XidGraphicsEngineException"]}]}`, nvidia, "XID 13", "site/enable(nvidia/xid-13)", reason.ActionQuarantine, reason.SeverityMajor},
		"enable by a site's own code": {
			rules + `,"enable":[{"codes":["SitePageFault"]}]}`, nvidia, "XID 31", "site/enable(site/own-31)", reason.ActionQuarantine, reason.SeverityMajor},
		"enable leaves a fatal reason fatal": {
			rules + `,"enable":[{"xids":[79]}]}`, nvidia, "XID 79", "site/enable(nvidia/xid-79)", reason.ActionQuarantine, reason.SeverityFatal},
		"the site decides what an unlisted Xid means": {
			rules + `,"defaults":{"unrecognizedXid":{"severity":"major","action":"quarantine","closes":"reset","scope":"chip"}}}`, nvidia, "XID 4711", "site/default/unrecognized-xid", reason.ActionQuarantine, reason.SeverityMajor},
		"the site decides what an unknown text means": {
			rules + `,"defaults":{"unrecognizedMessage":{"severity":"minor","action":"suspect","closes":"gates","scope":"instance"}}}`, nvidia, "flux", "site/default/unrecognized-message", reason.ActionSuspect, reason.SeverityMinor},
		"the site decides what no message means": {
			rules + `,"defaults":{"withoutMessage":{"severity":"minor","action":"watch"}}}`, nvidia, "", "site/default/without-message", reason.ActionWatch, reason.SeverityMinor},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := with(t, test.site).Match(test.driver, test.message)
			if m.Rule != test.rule || m.Action != test.action || m.Severity != test.severity {
				t.Errorf("got %+v, want %s: %s, %s", m, test.rule, test.action, test.severity)
			}
			if want := reason.Version + "+site-4"; m.Catalogue != want {
				t.Errorf("catalogue %q, want %q", m.Catalogue, want)
			}
		})
	}
}

// Q7. Case 10, "policy changes do not silently re-judge": a new set makes a new
// catalogue, and what was decided by the old one stays as it was recorded.
func TestANewSetOfOverridesLeavesTheOldCatalogueAlone(t *testing.T) {
	builtin := reason.Builtin()
	before := builtin.Match(nvidia, "XID 31")
	overrides, err := reason.Parse([]byte(`{"version":"site-1","enable":[{"xids":[31]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	site, err := builtin.With(overrides)
	if err != nil {
		t.Fatal(err)
	}
	overrides.Enable[0].Xids[0] = 32
	if m := builtin.Match(nvidia, "XID 31"); m != before {
		t.Errorf("the builtin catalogue changed: %+v, was %+v", m, before)
	}
	if m := site.Match(nvidia, "XID 31"); m.Action != reason.ActionQuarantine || m.Catalogue == before.Catalogue {
		t.Errorf("the site's catalogue says %+v", m)
	}
	if none, err := builtin.With(nil); err != nil || none.Version() != reason.Version {
		t.Errorf("no overrides: version %v, error %v", none.Version(), err)
	}
	if _, err := site.With(overrides); !errors.Is(err, reason.ErrOverrides) {
		t.Errorf("a second set was laid over the first: %v", err)
	}
}

// Q7. Case 10, "malformed entries are rejected loudly": each with the place, what
// is wrong and what to do.
func TestAMalformedSetIsRefusedWithThePlaceAndTheRemedy(t *testing.T) {
	const good = `"name":"a","xids":[1],"code":"A","severity":"major","action":"quarantine","closes":"reset","scope":"chip"`
	rule := func(text string) string { return `{"version":"1","rules":[{` + text + `}]}` }
	swapped := func(old, new string) string { return rule(strings.Replace(good, old, new, 1)) }
	tests := map[string]struct{ text, want string }{
		"no JSON":                        {`version: 1`, `document: this is no JSON`},
		"empty":                          {``, `document: this is no JSON`},
		"a list":                         {`[]`, `document: want an object with the fields defaults, disable, enable, rules, version`},
		"cut off":                        {`{"version":"1"`, `no JSON`},
		"two documents":                  {`{"version":"1"}{}`, `document: something follows after the object; remove it`},
		"no version":                     {`{}`, `version "": give this set a name`},
		"a version with blanks":          {`{"version":"my set"}`, `version "my set": give this set a name`},
		"an unknown field":               {`{"version":"1","rule":[]}`, `document: unknown field "rule"; known are defaults, disable, enable, rules, version`},
		"an unknown field in a rule":     {rule(good + `,"severty":"major"`), `rules[0]: unknown field "severty"; known are action, closes, code, drivers, meaning, message, name, scope, severity, source, xids`},
		"a field given twice":            {`{"version":"1","version":"2"}`, `document: field "version" is given twice; remove one`},
		"a number for a text":            {`{"version":1}`, `version: want a text, not 1`},
		"null":                           {`{"version":null}`, `version: want a text, not null`},
		"rules that are no list":         {`{"version":"1","rules":{}}`, `rules: want a list`},
		"rules that are null":            {`{"version":"1","rules":null}`, `rules: want a list`},
		"an Xid that is a text":          {swapped(`[1]`, `["79"]`), `rules[0].xids[0]: want a whole number, not "79"`},
		"half an Xid":                    {swapped(`[1]`, `[7.9]`), `rules[0].xids[0]: want a whole number, not 7.9`},
		"Xid 0":                          {swapped(`[1]`, `[0]`), `rules[0] "a": xids: 0 is no Xid; give numbers from 1 to 65535`},
		"an Xid twice":                   {swapped(`[1]`, `[1,1]`), `rules[0] "a": xids: 1 is listed twice; remove one`},
		"no condition":                   {swapped(`[1]`, `[]`), `rules[0] "a": xids and message are both missing`},
		"no name":                        {swapped(`"a"`, `""`), `rules[0] "": name "": want lower-case letters`},
		"a name with blanks":             {swapped(`"a"`, `"A b"`), `name "A b": want lower-case letters`},
		"no code":                        {swapped(`"A"`, `""`), `rules[0] "a": code "": want CamelCase`},
		"a code that is no label":        {swapped(`"A"`, `"a b"`), `code "a b": want CamelCase`},
		"a code of 64 characters":        {swapped(`"A"`, `"`+strings.Repeat("A", 64)+`"`), `want CamelCase letters and digits, at most 63`},
		"Sickbay's own code":             {swapped(`"A"`, `"DeviceMissing"`), `code DeviceMissing is Sickbay's own`},
		"a bad severity":                 {swapped(`major`, `huge`), `rules[0].severity: severity "huge": want note, minor, major or fatal`},
		"severity none":                  {swapped(`major`, `none`), `severity "none": want note, minor, major or fatal`},
		"no severity":                    {swapped(`"severity":"major",`, ``), `rules[0] "a": severity is missing; give note, minor, major or fatal`},
		"a bad action":                   {swapped(`quarantine`, `evict`), `rules[0] "a": action "evict": want ignore, blameWorkload, watch, suspect or quarantine`},
		"a bad closes":                   {swapped(`reset`, `prayer`), `closes "prayer": want gates, reset, operator or repair`},
		"a bad scope":                    {swapped(`chip`, `rack`), `scope "rack": want chip or instance`},
		"a fault without closes":         {swapped(`"closes":"reset",`, ``), `closes is missing; action quarantine takes a device out`},
		"a fault without scope":          {swapped(`,"scope":"chip"`, ``), `scope is missing; action quarantine takes a device out`},
		"a note that takes a device out": {swapped(`major`, `note`), `severity note says that the device is well`},
		"a bad expression":               {rule(good + `,"message":"("`), `message is no regular expression (RE2)`},
		"an expression that is all":      {rule(good + `,"message":".*"`), `message ".*" matches every text; narrow it`},
		"an expression too long":         {rule(good + `,"message":"` + strings.Repeat("x", 1025) + `"`), `message is 1025 bytes long; shorten it to 1024`},
		"a bad driver pattern":           {rule(good + `,"drivers":["[gpu"]`), `drivers: "[gpu" is no pattern`},
		"an empty driver pattern":        {rule(good + `,"drivers":[""]`), `drivers: "" is no pattern`},
		"a selector that picks nothing":  {`{"version":"1","disable":[{}]}`, `disable[0]: picks nothing; give xids, codes or all: true`},
		"all that isn't true or false":   {`{"version":"1","disable":[{"all":"yes"}]}`, `disable[0].all: want true or false, not "yes"`},
		"a code twice in a selector":     {`{"version":"1","enable":[{"codes":["A","A"]}]}`, `enable[0]: codes: A is listed twice; remove one`},
		"a bad default":                  {`{"version":"1","defaults":{"unrecognizedXid":{"severity":"major","action":"drop"}}}`, `defaults.unrecognizedXid: action "drop": want ignore`},
		"an unknown default":             {`{"version":"1","defaults":{"unknown":{}}}`, `defaults: unknown field "unknown"; known are unrecognizedMessage, unrecognizedXid, withoutMessage`},
		"two rules of one name":          {`{"version":"1","rules":[{` + good + `},{` + strings.NewReplacer(`[1]`, `[2]`, `"A"`, `"B"`).Replace(good) + `}]}`, `rules[1] "a": the name is taken by an earlier rule`},
		"two rules of one code":          {`{"version":"1","rules":[{` + good + `},{` + strings.NewReplacer(`[1]`, `[2]`, `"a"`, `"b"`).Replace(good) + `}]}`, `rules[1] "b": code A is given by rule "a" already`},
		"two rules for one Xid":          {`{"version":"1","rules":[{` + good + `},{` + strings.NewReplacer(`"A"`, `"B"`, `"a"`, `"b"`).Replace(good) + `}]}`, `rules[1] "b": xids: 1 is caught by rule "a" already; remove one`},
		"two rules for one text":         {`{"version":"1","rules":[{` + strings.Replace(good, `"xids":[1]`, `"message":"x"`, 1) + `},{` + strings.NewReplacer(`"A"`, `"B"`, `"a"`, `"b"`, `"xids":[1]`, `"message":"x"`).Replace(good) + `}]}`, `rules[1] "b": message "x" is caught by rule "a" already`},
	}
	if _, err := reason.Parse([]byte(rule(good))); err != nil {
		t.Fatalf("the good rule is refused: %v", err)
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			overrides, err := reason.Parse([]byte(test.text))
			if err == nil {
				t.Fatalf("accepted as %+v", overrides)
			}
			if !errors.Is(err, reason.ErrOverrides) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got  %v\nwant %s", err, test.want)
			}
		})
	}
}

// Q7. A code that no rule gives is a typing error, which would leave a device in
// service or out of it.
func TestEnablingACodeThatNoRuleGivesIsRefused(t *testing.T) {
	overrides, err := reason.Parse([]byte(`{"version":"1","enable":[{"codes":["XidFalenOffBus"]}],"disable":[{"codes":["XidGspEror","XidGspError"]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	_, err = reason.Builtin().With(overrides)
	for _, want := range []string{`enable[0]: no rule gives the code "XidFalenOffBus"`, `disable[0]: no rule gives the code "XidGspEror"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if err != nil && strings.Contains(err.Error(), `"XidGspError"`) {
		t.Errorf("a code that exists is refused: %v", err)
	}
}

// Q7. Somebody who mends a set sees all that is wrong with it at once.
func TestAllErrorsOfASetComeAtOnce(t *testing.T) {
	_, err := reason.Parse([]byte(`{"version":"my set","enable":[{}],"rules":[
		{"name":"a","code":"A","severity":"major","action":"evict"},
		{"name":"a","xids":[0,0],"code":"A","severity":"note","action":"suspect","message":"("}],
		"defaults":{"withoutMessage":{"action":"watch"}}}`))
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		`version "my set"`, `enable[0]: picks nothing`, `rules[0] "a": action "evict"`, `rules[0] "a": xids and message are both missing`,
		`rules[1] "a": the name is taken`, `rules[1] "a": code A is given`, `rules[1] "a": xids: 0 is no Xid`, `rules[1] "a": xids: 0 is listed twice`,
		`rules[1] "a": message is no regular expression`, `rules[1] "a": closes is missing`, `rules[1] "a": scope is missing`,
		`rules[1] "a": severity note says`, `defaults.withoutMessage: severity is missing`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("missing: %s", want)
		}
	}
	_, err = reason.Parse([]byte(`{"versoin":"1","rules":[{"nmae":"a"},{"severity":"huge"}],"enable":[{"xids":["a"]}]}`))
	for _, want := range []string{`"versoin"`, `"nmae"`, `"huge"`, `enable[0].xids[0]`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("missing: %s in %v", want, err)
		}
	}
}

// Q7. What was parsed is what was written.
func TestASetIsReadAsItWasWritten(t *testing.T) {
	got, err := reason.Parse([]byte(`{"version":"site-4",
		"enable":[{"xids":[13,31],"drivers":["gpu.nvidia.com"]},{"codes":["XidGspError"]}],
		"disable":[{"all":true}],
		"rules":[{"name":"a","drivers":["*"],"xids":[7],"message":"x","code":"A","severity":"fatal","action":"quarantine","closes":"repair","scope":"chip","meaning":"m","source":"s"}],
		"defaults":{"withoutMessage":{"severity":"minor","action":"watch"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	want := &reason.Overrides{
		Version: "site-4",
		Enable:  []reason.Selector{{Xids: []int{13, 31}, Drivers: []string{nvidia}}, {Codes: []reason.Code{"XidGspError"}}},
		Disable: []reason.Selector{{All: true}},
		Rules: []reason.Rule{{Name: "a", Drivers: []string{"*"}, Xids: []int{7}, Message: "x", Code: "A", Meaning: "m", Source: "s",
			Verdict: reason.Verdict{Severity: reason.SeverityFatal, Action: reason.ActionQuarantine, Closes: reason.ClosesByRepair, Scope: "chip"}}},
		Defaults: reason.Defaults{WithoutMessage: &reason.Verdict{Severity: reason.SeverityMinor, Action: reason.ActionWatch}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	catalogue, err := reason.Builtin().With(got)
	if err != nil {
		t.Fatal(err)
	}
	if rules := catalogue.Rules(); rules[0].Name != "site/a" || !slices.ContainsFunc(rules, func(r reason.Rule) bool { return r.Name == "site/default/without-message" }) {
		t.Errorf("the rules don't show the site's own")
	}
}
