package realnode

// This file answers Pods' questions about the names of Services, by UDP.

import (
	"net"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

// clusterDomain ends all names; the kubelet writes it into a Pod's resolv.conf.
const clusterDomain = "cluster.local"

// answerNames answers until the connection is closed.
func (s *services) answerNames(from net.PacketConn) {
	question := make([]byte, 1500)
	for {
		size, asker, err := from.ReadFrom(question)
		if err != nil {
			return // closed
		}
		answer, err := s.answer(question[:size])
		if err != nil {
			continue // not DNS
		}
		// Whoever hears nothing asks again.
		_, _ = from.WriteTo(answer, asker)
	}
}

// answer answers one question: with the Service's address, or that there is no such
// name.
func (s *services) answer(message []byte) ([]byte, error) {
	var parser dnsmessage.Parser
	header, err := parser.Start(message)
	if err != nil {
		return nil, err
	}
	question, err := parser.Question()
	if err != nil {
		return nil, err
	}
	reply := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: header.ID, Response: true, Authoritative: true, RecursionDesired: header.RecursionDesired},
		Questions: []dnsmessage.Question{question},
	}
	ip := net.ParseIP(s.lookUp(question.Name.String())).To4()
	switch {
	case ip == nil:
		reply.RCode = dnsmessage.RCodeNameError
	case question.Type == dnsmessage.TypeA:
		reply.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: question.Name, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET, TTL: 1},
			Body:   &dnsmessage.AResource{A: [4]byte(ip)},
		}}
	}
	return reply.Pack()
}

// lookUp finds a Service by <name>.<namespace>.svc.cluster.local.
func (s *services) lookUp(name string) string {
	service, ok := strings.CutSuffix(strings.ToLower(name), ".svc."+clusterDomain+".")
	if !ok {
		return ""
	}
	label, namespace, ok := strings.Cut(service, ".")
	if !ok {
		return ""
	}
	return s.address(namespace, label)
}
