package ui

// This file takes the pictures of docs/temporal-ui.md: of the pages that the test
// reads, and only when they are asked for (make screenshots).

import (
	"bytes"
	"cmp"
	"flag"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sickbay-dev/sickbay/tests/browser"
)

var pictures = flag.String("screenshots", "", "folder to write the pictures of docs/temporal-ui.md to")

// menu and bar are what the UI has left of and above every page, in pixels.
const (
	menu = 256
	bar  = 48
)

// open reads a page, and takes its picture if one of that name is wanted.
func (s *site) open(t *testing.T, p browser.Page, name string) string {
	t.Helper()
	if *pictures == "" || name == "" {
		return s.browser.Read(t, p)
	}
	p.Screenshot, p.Left, p.Top = filepath.Join(*pictures, name+".png"), menu, bar
	text := s.browser.Read(t, p)
	if err := shrink(p.Screenshot); err != nil {
		t.Fatal(err)
	}
	return text
}

// shrink writes a picture anew with its 256 most frequent colours, which a page has
// hardly more of than the edges of letters: it takes half the room.
func shrink(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	full, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		return err
	}
	frame := full.Bounds()
	count := map[color.Color]int{}
	for y := frame.Min.Y; y < frame.Max.Y; y++ {
		for x := frame.Min.X; x < frame.Max.X; x++ {
			count[full.At(x, y)]++
		}
	}
	frequent := slices.SortedFunc(maps.Keys(count), func(a, b color.Color) int { return cmp.Compare(count[b], count[a]) })
	small := image.NewPaletted(frame, frequent[:min(len(frequent), 256)])
	index := map[color.Color]uint8{}
	for c := range count {
		index[c] = uint8(small.Palette.Index(c))
	}
	for y := frame.Min.Y; y < frame.Max.Y; y++ {
		for x := frame.Min.X; x < frame.Max.X; x++ {
			small.SetColorIndex(x, y, index[full.At(x, y)])
		}
	}
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, small); err != nil {
		return err
	}
	return os.WriteFile(path, out.Bytes(), 0o644)
}
