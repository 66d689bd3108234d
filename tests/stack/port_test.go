package stack

import (
	"net"
	"testing"
)

func TestPortsOfTwoStacksNeverOverlap(t *testing.T) {
	first, err := reservePorts(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer first.release()
	second, err := reservePorts(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer second.release()
	if first.base == second.base {
		t.Errorf("both have %d", first.base)
	}
}

func TestABlockWithAListenerInItIsPassedOver(t *testing.T) {
	first, err := reservePorts(nil)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", loopback(first.port(portRedis)))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	first.release()

	second, err := reservePorts(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer second.release()
	if second.base == first.base {
		t.Errorf("reserved %d although something listens on %s", first.base, listener.Addr())
	}
}

func TestFreePortsAreDistinctAndEndWithTheBlock(t *testing.T) {
	block := &portBlock{base: firstPort, next: firstFreePort}
	seen := map[int]bool{}
	for range blockSize - firstFreePort {
		port, err := block.free()
		if err != nil {
			t.Fatal(err)
		}
		if seen[port] || port < firstPort+firstFreePort || port >= firstPort+blockSize {
			t.Errorf("port %d twice or outside the block", port)
		}
		seen[port] = true
	}
	if _, err := block.free(); err == nil {
		t.Error("a port was handed out beyond the block")
	}
}
