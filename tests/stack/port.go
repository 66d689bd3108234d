package stack

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
)

// Ports come in blocks below the range from which the kernel gives out ports
// for outgoing connections, so that no connection can take one by chance. A
// lock file for each block keeps stacks of other processes off it, without a
// window between looking and listening.
const (
	firstPort = 20000
	lastPort  = 32000
	blockSize = 32
)

// Offsets of the fixed ports in a block; the rest is for FreePort.
const (
	portEtcd = iota
	portEtcdPeer
	portAPIServer
	portScheduler
	portControllerManager
	portTemporal
	portTemporalHTTP
	portTemporalUI
	portTemporalMetrics
	portTemporalInternal // and the next three
	_
	_
	_
	portRedis
	portOTLP
	portPostgreSQL
	firstFreePort
)

// portBlock is a reserved run of blockSize ports.
type portBlock struct {
	base int
	next int // offset of the next port that FreePort hands out
	lock *lock
}

// reservePorts takes the first block that no other stack has and whose ports
// nothing listens on. Blocks in skip are passed over.
func reservePorts(skip map[int]bool) (*portBlock, error) {
	dir := filepath.Join(os.TempDir(), "sickbay-ports")
	if err := os.Mkdir(dir, 0o777); err == nil {
		// For other users' stacks too; the umask took that away.
		if err := os.Chmod(dir, 0o777); err != nil {
			return nil, fmt.Errorf("reserve ports: %w", err)
		}
	} else if !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("reserve ports: %w", err)
	}
	for base := firstPort; base+blockSize <= lastPort; base += blockSize {
		if skip[base] {
			continue
		}
		held, err := tryLock(filepath.Join(dir, fmt.Sprint(base)))
		if err != nil {
			return nil, fmt.Errorf("reserve ports: %w", err)
		}
		if held == nil {
			continue
		}
		if !blockIsQuiet(base) {
			held.unlock()
			continue
		}
		return &portBlock{base: base, next: firstFreePort, lock: held}, nil
	}
	return nil, fmt.Errorf("reserve ports: no free block of %d ports between %d and %d", blockSize, firstPort, lastPort)
}

// blockIsQuiet tries to listen on each port of the block.
func blockIsQuiet(base int) bool {
	for port := base; port < base+blockSize; port++ {
		listener, err := net.Listen("tcp", loopback(port))
		if err != nil {
			return false
		}
		listener.Close()
	}
	return true
}

func (b *portBlock) port(offset int) int { return b.base + offset }

// free hands out a port that nothing else in the stack uses.
func (b *portBlock) free() (int, error) {
	if b.next >= blockSize {
		return 0, fmt.Errorf("no port left in the stack's block %d-%d", b.base, b.base+blockSize-1)
	}
	b.next++
	return b.base + b.next - 1, nil
}

func (b *portBlock) release() { b.lock.unlock() }

// loopback is the address of a port.
func loopback(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
