package reason

import (
	"regexp"
	"strconv"
	"strings"
)

// statements splits a message into what was said at once. Where several
// containers or devices say different things, they were joined by "; ".
func statements(message string) []string {
	var all []string
	for part := range strings.SplitSeq(message, ";") {
		if part = strings.TrimSpace(part); part != "" {
			all = append(all, part)
		}
	}
	return all
}

// xidNumber reads what follows the word "xid": the PCI address that the kernel
// log puts between the word and the number, then words and signs that drivers
// put there, then the number.
//
//	Xid (PCI:0000:5e:00): 79, pid=…      NVIDIA's kernel log
//	critical XID 79 reported by NVML     NVIDIA's DRA driver
//	XidCriticalError: Xid=79 on Device=… NVIDIA's device plugin
//	NvidiaXID79Error                     EKS node monitoring agent
//	Xid error 79, xid48, XID #79, xid:79, XID_79
var xidNumber = regexp.MustCompile(`^s?\s*(?:\((?:pci:)?[0-9a-f]*:[0-9a-f:.]+\))?` +
	`(?:[\s_:=#(\[-]|critical|fatal|error|code|number|event)*([0-9]+)`)

// xidList reads further numbers after the plural: "Xids 48, 63 and 64".
var xidList = regexp.MustCompile(`^\s*(?:,|and|&|/)\s*(?:and\s+)?([0-9]+)`)

// Xids returns the Xid numbers that a message carries, in the order of the text,
// each once. SXids are the NVSwitch's numbers, not Xids.
func Xids(message string) []int {
	text := strings.ToLower(message)
	var found []int
	for start := 0; ; {
		at := strings.Index(text[start:], "xid")
		if at < 0 {
			return found
		}
		word := start + at
		start = word + len("xid")
		if !startsWord(text[:word]) {
			continue
		}
		rest := text[start:]
		m := xidNumber.FindStringSubmatchIndex(rest)
		if m == nil {
			continue
		}
		found = appendXid(found, rest[m[2]:m[3]])
		tail := rest[m[3]:]
		for strings.HasPrefix(rest, "s") {
			m := xidList.FindStringSubmatchIndex(tail)
			if m == nil {
				break
			}
			found = appendXid(found, tail[m[2]:m[3]])
			tail = tail[m[3]:]
		}
	}
}

// startsWord tells whether "xid" may begin after this text: not in the middle of
// a word, except for NvidiaXID79Error.
func startsWord(before string) bool {
	if before == "" || strings.HasSuffix(before, "nvidia") {
		return true
	}
	last := before[len(before)-1]
	return last < 'a' || last > 'z'
}

func appendXid(found []int, digits string) []int {
	n, err := strconv.Atoi(digits)
	if err != nil || n < 1 || n > maxXid {
		return found
	}
	for _, known := range found {
		if known == n {
			return found
		}
	}
	return append(found, n)
}
