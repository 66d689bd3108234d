package e2e

// This file tries what the admission policies let Sickbay's accounts do to
// DeviceTaintRules.

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/sickbay-dev/sickbay/pkg/kube"
	"github.com/sickbay-dev/sickbay/tests/pages"
	"github.com/sickbay-dev/sickbay/tests/stack"
)

// What Sickbay's own accounts may write is bounded by the API server, whatever
// RBAC grants them: marks of single devices that evict nobody, and no rule of
// anybody else. They may do nothing else that is dangerous, and a tenant can write
// neither marks nor health. Proves a part of Q5 and of Q3.
func TestWhateverRunsAsSickbayCanOnlyMark(t *testing.T) {
	latest := stack.Versions()[len(stack.Versions())-1]
	for _, release := range stack.Versions() {
		t.Run(release, func(t *testing.T) {
			apis := map[string][]string{"1.36": {"v1beta2", "v1alpha3"}, "1.37": {"v1", "v1beta2", "v1alpha3"}}[release]
			p := police(t, release, apis)
			if release == latest {
				pages.Run(t, pages.Page{Path: "docs/security.md", Env: p.oneMark(), Update: *updatePage})
			}
			worker, starter := p.accounts.Worker.Config, p.accounts.Starter.Config

			impersonated := rest.CopyConfig(p.stack.RESTConfig())
			impersonated.Impersonate = rest.ImpersonationConfig{UserName: p.accounts.Worker.User}
			grouped := rest.CopyConfig(p.stack.RESTConfig())
			grouped.Impersonate = rest.ImpersonationConfig{UserName: p.accounts.Worker.User, Groups: []string{"system:masters"}}
			person, err := p.stack.UserConfig("sickbay")
			if err != nil {
				t.Fatal(err)
			}

			// An owner that isn't there would have the rule removed.
			home, err := p.kube.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			owner := with([]any{map[string]any{"apiVersion": "v1", "kind": "Namespace", "name": home.Name, "uid": string(home.UID)}}, "metadata", "ownerReferences")
			const (
				key      = "only the taint key"
				effect   = "NoExecute would delete"
				selector = "names driver, pool and device"
				named    = "named sickbay-… and labelled"
				device   = "has to name the device"
				whose    = "somebody else's"
				hung     = "no finalizers and no owners"
				moved    = "A mark stays with its device"
				status   = "no subresource"
				free     = "" // let through
			)
			for sentence, c := range map[string]struct {
				as     *rest.Config
				there  edit // how the mark looks that an administrator made before; nil: there is none
				try    func(rules, *unstructured.Unstructured) error
				change edit   // what is tried to make of it
				want   string // what the refusal says
			}{
				"a mark is made as the worker writes it":       {as: worker, try: create, want: free},
				"a mark is tried without making it":            {as: worker, try: createDry, want: free},
				"a mark that only tells what it would do":      {as: worker, try: create, change: with("None", "spec", "taint", "effect"), want: free},
				"a mark is made by apply":                      {as: worker, try: apply, want: free},
				"a mark of a pool with a slash in its name":    {as: worker, try: create, change: both(with("rack/node-0", "spec", "deviceSelector", "pool"), asMark), want: free},
				"a rule that evicts":                           {as: worker, try: create, change: evicting, want: effect},
				"a rule that evicts, tried without making it":  {as: worker, try: createDry, change: evicting, want: effect},
				"a rule that evicts, by apply":                 {as: worker, try: apply, change: evicting, want: effect},
				"a rule for every device of the cluster":       {as: worker, try: create, change: selecting(), want: selector},
				"a rule for no device":                         {as: worker, try: create, change: without("spec", "deviceSelector"), want: selector},
				"a rule for every device of a driver":          {as: worker, try: create, change: selecting("driver"), want: selector},
				"a rule for a whole pool":                      {as: worker, try: create, change: selecting("driver", "pool"), want: selector},
				"a rule for one name in every pool":            {as: worker, try: create, change: selecting("driver", "device"), want: selector},
				"a rule for one pool of every driver":          {as: worker, try: create, change: selecting("pool", "device"), want: selector},
				"a rule with another taint key":                {as: worker, try: create, change: otherKey, want: key},
				"a rule with a taint key much like ours":       {as: worker, try: create, change: with("sickbay.dev/quarantined-too", "spec", "taint", "key"), want: key},
				"a rule without the label":                     {as: worker, try: create, change: unlabelled, want: named},
				"a rule without any label":                     {as: worker, try: create, change: without("metadata", "labels"), want: named},
				"a rule with somebody else's label":            {as: worker, try: create, change: with("Helm", "metadata", "labels", kube.ManagedByLabel), want: named},
				"a rule with an empty label":                   {as: worker, try: create, change: with("", "metadata", "labels", kube.ManagedByLabel), want: named},
				"a rule under another name":                    {as: worker, try: create, change: renamed("maintenance"), want: named},
				"a rule under a generated other name":          {as: worker, try: create, change: both(without("metadata", "name"), with("maintenance-", "metadata", "generateName")), want: named},
				"a rule under a generated name, that evicts":   {as: worker, try: create, change: both(without("metadata", "name"), with("sickbay-", "metadata", "generateName"), evicting), want: effect},
				"a mark that tells of another device":          {as: worker, try: create, change: about("gpu.example.com/node-0/gpu-0"), want: device},
				"a mark that tells of no device":               {as: worker, try: create, change: without("metadata", "annotations"), want: device},
				"a mark that nobody could remove":              {as: worker, try: create, change: finalizer, want: hung},
				"a mark that goes with somebody else's object": {as: worker, try: create, change: owner, want: hung},

				"a mark is brought up to date":                         {as: worker, there: asIs, try: update, change: with("fatal", "metadata", "labels", kube.LabelSeverity), want: free},
				"a mark is brought up to date by a patch":              {as: worker, there: asIs, try: merge, change: with("fatal", "metadata", "labels", kube.LabelSeverity), want: free},
				"a mark is brought up to date by apply":                {as: worker, there: asIs, try: apply, change: with("2000", "spec", "taint", "value"), want: free},
				"a mark that somebody widened is put right":            {as: worker, there: selecting("driver"), try: update, change: selectsItsDevice, want: free},
				"a mark that somebody made evict is put right":         {as: worker, there: evicting, try: update, change: with("NoSchedule", "spec", "taint", "effect"), want: free},
				"a mark whose key somebody changed is put right":       {as: worker, there: otherKey, try: update, change: with(kube.TaintKey, "spec", "taint", "key"), want: free},
				"a mark with somebody's finalizer is brought up":       {as: worker, there: finalizer, try: update, change: with("2000", "spec", "taint", "value"), want: free},
				"a mark with somebody's owner is brought up":           {as: worker, there: owner, try: update, change: with("2000", "spec", "taint", "value"), want: free},
				"a mark becomes one that evicts":                       {as: worker, there: asIs, try: update, change: evicting, want: effect},
				"a mark becomes one that evicts, by a patch":           {as: worker, there: asIs, try: merge, change: evicting, want: effect},
				"a mark becomes one that evicts, by apply":             {as: worker, there: asIs, try: apply, change: evicting, want: effect},
				"a mark becomes one for every device":                  {as: worker, there: asIs, try: update, change: selecting(), want: selector},
				"a mark becomes one for its whole pool":                {as: worker, there: asIs, try: update, change: without("spec", "deviceSelector", "device"), want: selector},
				"a mark becomes one with another key":                  {as: worker, there: asIs, try: update, change: otherKey, want: key},
				"a mark loses its label":                               {as: worker, there: asIs, try: update, change: unlabelled, want: named},
				"a mark loses its annotation":                          {as: worker, there: asIs, try: update, change: without("metadata", "annotations"), want: device},
				"a mark is turned to another device":                   {as: worker, there: asIs, try: update, change: both(selecting("driver", "pool", "device"), about("gpu.example.com/node-0/gpu-0")), want: moved},
				"a mark gets a finalizer":                              {as: worker, there: asIs, try: update, change: finalizer, want: hung},
				"a mark gets an owner":                                 {as: worker, there: asIs, try: update, change: owner, want: hung},
				"somebody's finalizer is taken off a mark":             {as: worker, there: finalizer, try: update, change: without("metadata", "finalizers"), want: hung},
				"somebody else's rule is made a mark":                  {as: worker, there: foreign, try: update, change: asMark, want: whose},
				"somebody else's rule is made a mark by a patch":       {as: worker, there: foreign, try: merge, change: asMark, want: whose},
				"somebody else's rule is made a mark by apply":         {as: worker, there: foreign, try: apply, change: asMark, want: whose},
				"somebody else's rule under a mark's name is labelled": {as: worker, there: unlabelled, try: update, change: with(kube.ManagedBy, "metadata", "labels", kube.ManagedByLabel), want: whose},

				"the status of a mark is written":         {as: worker, there: asIs, try: updateStatus, want: status},
				"a mark is removed":                       {as: worker, there: asIs, try: remove, want: free},
				"somebody else's rule is removed":         {as: worker, there: both(foreign, renamed("maintenance-1")), try: remove, want: whose},
				"somebody else's rule is removed by dint": {as: worker, there: both(foreign, renamed("maintenance-2")), try: removeForce, want: whose},
				"somebody else's rule is tried to remove": {as: worker, there: both(foreign, renamed("maintenance-3")), try: removeDry, want: whose},
				"a rule with a mark's name and no label":  {as: worker, there: unlabelled, try: remove, want: whose},
				"a rule with our label and another name":  {as: worker, there: renamed("maintenance-4"), try: remove, want: whose},
				"a rule with our label and no device":     {as: worker, there: without("metadata", "annotations"), try: remove, want: whose},
				"a mark whose key somebody changed":       {as: worker, there: otherKey, try: remove, want: "remove it by hand"},

				"the starter makes a rule that evicts":                        {as: starter, try: create, change: evicting, want: effect},
				"the starter removes somebody else's rule":                    {as: starter, there: both(foreign, renamed("maintenance-5")), try: remove, want: whose},
				"any account of the namespace makes a rule that evicts":       {as: p.serviceAccount("sickbay", "default"), try: create, change: evicting, want: effect},
				"the worker's account in another namespace":                   {as: p.serviceAccount("elsewhere", "sickbay-worker"), try: create, change: evicting, want: effect},
				"an account with another name in another namespace":           {as: p.serviceAccount("elsewhere", "worker"), try: create, change: both(foreign, renamed("maintenance-6"), evicting), want: free},
				"a person of that name":                                       {as: person, try: create, change: both(foreign, renamed("maintenance-7"), evicting), want: free},
				"an administrator as the worker":                              {as: impersonated, try: create, change: evicting, want: effect},
				"an administrator as the worker in the administrators' group": {as: grouped, try: create, change: evicting, want: effect},
				"an administrator":                                            {as: p.stack.RESTConfig(), there: both(foreign, renamed("maintenance-8")), try: remove, want: free},
			} {
				t.Run(sentence, func(t *testing.T) {
					rule := p.mark()
					if c.there != nil {
						rule = p.there(c.there)
					}
					name, before := rule.GetName(), said(rule)
					err := p.try(c.try, p.rulesOf(c.as), rule, c.change)
					if c.want == free {
						if err != nil {
							t.Errorf("refused: %v", err)
						}
						return
					}
					if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "sickbay-marks") || !strings.Contains(err.Error(), c.want) {
						t.Errorf("answered %v; want the policy to refuse it because %q", err, c.want)
					}
					after, err := p.admin.Get(t.Context(), name, metav1.GetOptions{})
					if c.there == nil && !apierrors.IsNotFound(err) || c.there != nil && (err != nil || said(after) != before) {
						t.Errorf("the rule changed all the same: %v", err)
					}
				})
			}
			p.collection(p.accounts.Worker.Config)
			p.nothingElse()
			p.tenant()
			p.lookalikes()
			p.moved()
			for _, api := range apis[1:] {
				p.version = api
				p.admin = p.rulesOf(p.stack.RESTConfig())
				rules := p.rulesOf(p.accounts.Worker.Config)
				for sentence, err := range map[string]error{
					effect:   create(rules, p.mark(evicting)),
					selector: p.try(update, rules, p.there(asIs), selecting()),
					whose:    remove(rules, p.there(foreign)),
				} {
					if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), sentence) {
						t.Errorf("by %s: answered %v; want it refused because %q", api, err, sentence)
					}
				}
				if err := create(rules, p.mark()); err != nil {
					t.Errorf("by %s: a mark: %v", api, err)
				}
			}
		})
	}
}
