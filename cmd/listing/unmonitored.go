package listing

// This file tells an Unknown that is a loss from one of a driver that never reported
// any health on a node: the starters write down where one did, and of the rest nothing
// is concluded.

import (
	"context"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/reading"
)

// Unmonitored stands for the reason of an Unknown whose driver never reported any
// health on the node.
const Unmonitored = "Unmonitored"

// Known holds on which nodes each driver, or extended resource, ever reported health.
// Nil is that nobody tells.
type Known map[string]map[string]bool

// Known reads what the starters wrote down beside their Lease; nil where that can't be
// read. It only ever adds a word.
func (e Election) Known(ctx context.Context, client kubernetes.Interface) Known {
	ctx, cancel := context.WithTimeout(ctx, leaseLimit)
	defer cancel()
	for _, namespace := range e.Namespaces {
		object, err := client.CoreV1().ConfigMaps(namespace).Get(ctx, e.Name+"-known", metav1.GetOptions{})
		if err != nil {
			continue
		}
		known := Known{}
		for file, text := range object.Data {
			// A key has an underscore where a resource's name has its slash.
			driver := strings.Replace(file, "_", "/", 1)
			known[driver] = map[string]bool{}
			for node := range strings.Lines(text) {
				known[driver][strings.TrimSpace(node)] = true
			}
		}
		return known
	}
	return nil
}

// monitors tells whether a device's driver ever reported health on its node, as far as
// anybody tells.
func (k Known) monitors(key device.Key, node string) bool {
	return k == nil || k[reading.DriverOf(key)][node]
}
