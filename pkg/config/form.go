package config

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// form is what a text has to look like.
type form struct {
	allowed string
	check   func(text string) error
}

var dnsLabel = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// forms are the forms that a field's tag can name.
func forms() map[string]form {
	return map[string]form{
		"file":   {"the path of a file that can be read", checkFile},
		"dial":   {"an address to connect to, host:port", checkDial},
		"listen": {"an address to listen on, host:port or :port; port 0 takes a free one", checkListen},
		"name":   {"a Kubernetes name: lower-case letters, digits and dashes, at most 63", checkName},
		"url":    {"an address that begins with http:// or https://", checkURL},
		"image":  {"an image such as registry.example.com/sickbay:1.0, without spaces", checkImage},
		"given":  {"a text that isn't empty", checkGiven},
	}
}

func checkFile(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if info.IsDir() {
		return fmt.Errorf("%s is a directory", path)
	}
	return nil
}

func checkDial(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	if host == "" {
		return errors.New("the host is missing")
	}
	return checkPort(port, 1)
}

func checkListen(address string) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	return checkPort(port, 0)
}

func checkPort(text string, least int) error {
	port, err := strconv.Atoi(text)
	if err != nil || port < least || port > 65535 {
		return fmt.Errorf("port %q isn't a number from %d to 65535", text, least)
	}
	return nil
}

func checkName(text string) error {
	if !dnsLabel.MatchString(text) {
		return errors.New("not a DNS label")
	}
	return nil
}

func checkURL(text string) error {
	address, err := url.Parse(text)
	if err != nil {
		return err
	}
	if address.Scheme != "http" && address.Scheme != "https" || address.Host == "" {
		return errors.New("the scheme or the host is missing")
	}
	return nil
}

func checkImage(text string) error {
	if strings.ContainsFunc(text, unicode.IsSpace) || strings.HasPrefix(text, "/") || strings.Contains(text, "://") {
		return errors.New("no name of an image")
	}
	return nil
}

func checkGiven(text string) error {
	if text == "" {
		return errors.New("it is empty")
	}
	return nil
}
