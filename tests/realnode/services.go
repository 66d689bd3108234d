package realnode

// This file gives Pods the cluster's Services: what kube-proxy and CoreDNS do on other
// nodes. kube-proxy would need NAT, and couldn't lead to the API server and Temporal of
// the stack, which listen on the loopback address alone; CoreDNS would be one more large
// part. So cluster addresses are on the machine's loopback interface, where Pods' packets
// come through the bridge, and this process forwards each connection, as kube-proxy once
// did in its userspace mode. What stands for more than that: network policies aren't
// enforced, and there is UDP for DNS alone.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	slicelisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/cache"
)

const (
	// serviceNet is where the stack's API server takes cluster addresses from.
	serviceNet = "10.96.0.0/16"
	// dnsIP is where Pods ask for names.
	dnsIP = "10.96.0.10"
	// dialLimit bounds how long a Pod's connection waits for what it leads to.
	dialLimit = 5 * time.Second
)

// front is an address that Pods connect to.
type front struct {
	ip   string
	port int32
}

func (f front) String() string { return net.JoinHostPort(f.ip, strconv.Itoa(int(f.port))) }

// services forwards what Pods send to Services.
type services struct {
	logf     func(string, ...any)
	services listers.ServiceLister
	slices   slicelisters.EndpointSliceLister
	changed  chan struct{}
	end      context.CancelFunc
	running  sync.WaitGroup

	mu sync.Mutex // guards the fields below
	// outside is where Services lead that no Pod backs, by namespace/name.
	outside map[string]string
	open    map[front]net.Listener
	owner   map[front]*corev1.Service
	names   net.PacketConn
}

// startServices follows the cluster's Services until stop.
func startServices(client kubernetes.Interface, apiServer string, logf func(string, ...any)) (_ *services, err error) {
	ctx, end := context.WithCancel(context.Background())
	factory := informers.NewSharedInformerFactory(client, 0)
	s := &services{
		logf:     logf,
		services: factory.Core().V1().Services().Lister(),
		slices:   factory.Discovery().V1().EndpointSlices().Lister(),
		changed:  make(chan struct{}, 1),
		end:      end,
		outside:  map[string]string{"default/kubernetes": apiServer},
		open:     map[front]net.Listener{},
		owner:    map[front]*corev1.Service{},
	}
	defer func() {
		if err != nil {
			s.stop()
		}
	}()
	notify := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { s.notify() },
		UpdateFunc: func(any, any) { s.notify() },
		DeleteFunc: func(any) { s.notify() },
	}
	if _, err := factory.Core().V1().Services().Informer().AddEventHandler(notify); err != nil {
		return nil, fmt.Errorf("follow Services: %w", err)
	}
	// Which Pods back a Service is asked at each connection.
	_ = factory.Discovery().V1().EndpointSlices().Informer()
	factory.Start(ctx.Done())
	if err := addAddress(ctx, dnsIP); err != nil {
		return nil, fmt.Errorf("give DNS its address: %w", err)
	}
	if s.names, err = net.ListenPacket("udp4", net.JoinHostPort(dnsIP, "53")); err != nil {
		return nil, fmt.Errorf("listen for questions about names: %w", err)
	}
	s.running.Go(func() { s.answerNames(s.names) })
	s.running.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-s.changed:
				s.follow(ctx)
			}
		}
	})
	return s, nil
}

func (s *services) notify() {
	select {
	case s.changed <- struct{}{}:
	default: // it is about to look anyway
	}
}

// stop ends all connections and frees the ports. The addresses go with the machine's.
func (s *services) stop() {
	s.end()
	s.mu.Lock()
	for _, listener := range s.open {
		_ = listener.Close()
	}
	if s.names != nil {
		_ = s.names.Close()
	}
	s.mu.Unlock()
	s.running.Wait()
}

// follow opens what is new and closes what is gone.
func (s *services) follow(ctx context.Context) {
	all, err := s.services.List(labels.Everything())
	if err != nil {
		s.logf("node: list Services: %v", err)
		return
	}
	want := map[front]*corev1.Service{}
	for _, service := range all {
		for _, port := range service.Spec.Ports {
			if ip := service.Spec.ClusterIP; ip != "" && ip != corev1.ClusterIPNone && port.Protocol == corev1.ProtocolTCP {
				want[front{ip, port.Port}] = service
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owner = want
	for at, listener := range s.open {
		if want[at] == nil {
			_ = listener.Close()
			delete(s.open, at)
		}
	}
	for at := range want {
		if s.open[at] != nil {
			continue
		}
		listener, err := listenAt(ctx, at)
		if err != nil {
			if ctx.Err() == nil {
				s.logf("node: Service %s/%s: %v", want[at].Namespace, want[at].Name, err)
			}
			continue
		}
		s.open[at] = listener
		s.running.Go(func() { s.accept(ctx, at, listener) })
	}
}

func listenAt(ctx context.Context, at front) (net.Listener, error) {
	if err := addAddress(ctx, at.ip); err != nil {
		return nil, err
	}
	return net.Listen("tcp4", at.String())
}

func (s *services) accept(ctx context.Context, at front, listener net.Listener) {
	for {
		connection, err := listener.Accept()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				s.logf("node: accept at %s: %v", at, err)
			}
			return
		}
		s.running.Go(func() { s.forward(ctx, at, connection) })
	}
}

// forward leads one connection to what is behind its front, until either side or the
// node ends.
func (s *services) forward(ctx context.Context, at front, from net.Conn) {
	defer from.Close()
	behind, err := s.behind(at)
	if err != nil {
		return // as where nothing listens
	}
	dialer := net.Dialer{Timeout: dialLimit}
	to, err := dialer.DialContext(ctx, "tcp", behind)
	if err != nil {
		return
	}
	defer to.Close()
	release := context.AfterFunc(ctx, func() { from.Close(); to.Close() })
	defer release()
	var both sync.WaitGroup
	for _, way := range []struct{ from, to net.Conn }{{from, to}, {to, from}} {
		both.Go(func() {
			_, _ = io.Copy(way.to, way.from)
			if half, ok := way.to.(*net.TCPConn); ok {
				_ = half.CloseWrite()
			}
		})
	}
	both.Wait()
}

// behind is an address that a front leads to: what was said, or a ready Pod.
func (s *services) behind(at front) (string, error) {
	s.mu.Lock()
	service := s.owner[at]
	var said string
	if service != nil {
		said = s.outside[service.Namespace+"/"+service.Name]
	}
	s.mu.Unlock()
	if service == nil {
		return "", fmt.Errorf("no Service has %s any more", at)
	}
	if said != "" {
		return said, nil
	}
	of, err := s.slices.EndpointSlices(service.Namespace).List(labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: service.Name}))
	if err != nil {
		return "", err
	}
	for _, port := range service.Spec.Ports {
		if port.Port != at.port {
			continue
		}
		for _, slice := range of {
			if address := readyAddress(slice, port.Name); address != "" {
				return address, nil
			}
		}
	}
	return "", fmt.Errorf("no Pod behind %s is ready", at)
}

func readyAddress(slice *discoveryv1.EndpointSlice, port string) string {
	for _, p := range slice.Ports {
		if p.Port == nil || p.Name == nil || *p.Name != port {
			continue
		}
		for _, endpoint := range slice.Endpoints {
			if endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready {
				return net.JoinHostPort(endpoint.Addresses[0], strconv.Itoa(int(*p.Port)))
			}
		}
	}
	return ""
}

// address is the cluster address of a Service; "" if there is none.
func (s *services) address(namespace, name string) string {
	service, err := s.services.Services(namespace).Get(name)
	if err != nil || service.Spec.ClusterIP == corev1.ClusterIPNone {
		return ""
	}
	return service.Spec.ClusterIP
}

// ServeOutside makes a Service, and its namespace, that leads to an address on this
// machine: for Pods, what is there has the Service's name.
func (n *Node) ServeOutside(ctx context.Context, namespace, name string, port int32, address string) error {
	n.services.mu.Lock()
	n.services.outside[namespace+"/"+name] = address
	n.services.mu.Unlock()
	_, err := n.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make namespace %s: %w", namespace, err)
	}
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: port}}},
	}
	if _, err := n.client.CoreV1().Services(namespace).Create(ctx, service, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make Service %s/%s: %w", namespace, name, err)
	}
	return nil
}

// addAddress puts an address on the loopback interface.
func addAddress(ctx context.Context, ip string) error {
	return run(ctx, "ip", "address", "replace", ip+"/32", "dev", "lo")
}

// ourAddresses are those on the loopback interface that a node puts there.
func ourAddresses() ([]string, error) {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		return nil, fmt.Errorf("look for the node's addresses: %w", err)
	}
	addresses, err := lo.Addrs()
	if err != nil {
		return nil, fmt.Errorf("look for the node's addresses: %w", err)
	}
	_, cluster, err := net.ParseCIDR(serviceNet)
	if err != nil {
		return nil, err
	}
	ours := map[string]bool{}
	for _, address := range addresses {
		if prefix, ok := address.(*net.IPNet); ok && (prefix.IP.String() == nodeIP || cluster.Contains(prefix.IP)) {
			ours[prefix.String()] = true
		}
	}
	return slices.Sorted(maps.Keys(ours)), nil
}
