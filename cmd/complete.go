package cmd

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sickbay-dev/sickbay/cmd/listing"
	"github.com/sickbay-dev/sickbay/pkg/reading"
	"github.com/sickbay-dev/sickbay/pkg/reason"
)

const (
	// completeLimit bounds what a press of the tab key may take. What was read by
	// then is offered.
	completeLimit = 3 * time.Second
	// offeredWhole is how many names are offered whole; of more, only the next
	// part of each is.
	offeredWhole = 40
)

// read reads the cluster for a completion. An error offers nothing: there is
// nowhere to say it.
func (f *peopleFlags) read(ctx context.Context) (listing.Cluster, string, bool) {
	ctx, cancel := context.WithTimeout(ctx, completeLimit)
	defer cancel()
	from, err := f.connect()
	if err != nil {
		return listing.Cluster{}, "", false
	}
	defer from.close()
	cluster, err := listing.Read(ctx, from.clients)
	return cluster, from.defaultNamespace, err == nil
}

// completeDevices offers the devices that the cluster and its marks name.
func (f *peopleFlags) completeDevices(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	cluster, _, ok := f.read(cmd.Context())
	if !ok {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, d := range listing.Join(cluster, nil, time.Time{}).Devices {
		if !slices.Contains(args, d.Name) {
			names = append(names, d.Name)
		}
	}
	return offer(names, toComplete)
}

// completePods offers the Pods that have devices: those of the namespace that is
// meant by their names alone.
func (f *podFlags) completePods(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	cluster, namespace, ok := f.read(cmd.Context())
	if !ok {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, name := range listing.PodsWithDevices(cluster) {
		in, alone, _ := strings.Cut(name, "/")
		switch {
		case f.namespace != "" && in != f.namespace:
		case f.namespace != "" || in == namespace && !strings.Contains(toComplete, "/"):
			names = append(names, alone)
		default:
			names = append(names, name)
		}
	}
	return offer(names, toComplete)
}

// offer gives the names that begin as typed. Where there are many, it gives the
// next part of each, up to the slash, as a shell does with folders.
func offer(names []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	var whole, parts []string
	for _, name := range names {
		rest, ok := strings.CutPrefix(name, toComplete)
		if !ok {
			continue
		}
		whole = append(whole, name)
		if at := strings.IndexByte(rest, '/'); at >= 0 {
			name = toComplete + rest[:at+1]
		}
		parts = append(parts, name)
	}
	if len(whole) <= offeredWhole {
		return whole, cobra.ShellCompDirectiveNoFileComp
	}
	slices.Sort(parts)
	parts = slices.Compact(parts)
	if slices.ContainsFunc(parts, func(part string) bool { return !strings.HasSuffix(part, "/") }) {
		return parts, cobra.ShellCompDirectiveNoFileComp
	}
	return parts, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// known gives what the devices of the cluster have in some field.
func (f *peopleFlags) known(of func(listing.Device) []string) func(context.Context) []string {
	return func(ctx context.Context) []string {
		cluster, _, ok := f.read(ctx)
		if !ok {
			return nil
		}
		var values []string
		for _, d := range listing.Join(cluster, nil, time.Time{}).Devices {
			values = append(values, of(d)...)
		}
		slices.Sort(values)
		return slices.DeleteFunc(slices.Compact(values), func(v string) bool { return v == "" })
	}
}

func driverOf(d listing.Device) []string { return []string{reading.DriverOf(d.Key)} }

// reasonCodes are the built-in catalogue's and those that Sickbay gives by itself;
// a site may have more.
func reasonCodes(context.Context) []string {
	codes := []string{string(reason.HealthUnknown), string(reason.PluginAbsent), string(reason.DeviceMissing), string(reason.HardwareReplaced), string(reason.Adopted)}
	for _, rule := range reason.Builtin().Rules() {
		codes = append(codes, string(rule.Code))
	}
	slices.Sort(codes)
	return slices.Compact(codes)
}

// completeList completes the last of several values that commas separate.
func completeList(values func(context.Context) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		before := toComplete[:strings.LastIndexByte(toComplete, ',')+1]
		var offered []string
		for _, v := range values(cmd.Context()) {
			if strings.HasPrefix(before+v, toComplete) {
				offered = append(offered, before+v)
			}
		}
		return offered, cobra.ShellCompDirectiveNoFileComp
	}
}
