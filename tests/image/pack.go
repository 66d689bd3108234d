package image

// This file packs a program of this machine as an image, without building anything: for
// programs whose own images can't be fetched.

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
)

// Pack writes an archive of an image with one program in /usr/bin, and the libraries
// that it loads where they are here.
func Pack(ctx context.Context, archive, name, program, entrypoint string) error {
	files := map[string]string{"usr/bin/" + filepath.Base(program): program}
	libraries, err := libraries(ctx, program)
	if err != nil {
		return err
	}
	for _, library := range libraries {
		files[strings.TrimPrefix(library, "/")] = library
	}
	contents := map[string][]byte{}
	for to, from := range files {
		if contents[to], err = os.ReadFile(from); err != nil {
			return fmt.Errorf("pack %s: %w", name, err)
		}
	}
	layer, err := pack(contents, 0o755)
	if err != nil {
		return fmt.Errorf("pack %s: %w", name, err)
	}
	settings := map[string]any{"Env": []string{"PATH=/usr/bin"}}
	if entrypoint != "" {
		settings["Entrypoint"] = []string{entrypoint}
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux", "config": settings,
		"rootfs":  map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + digest(layer)}},
		"history": []map[string]any{{"created_by": "pack"}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]map[string]any{{
		"Config": digest(config) + ".json", "RepoTags": []string{name}, "Layers": []string{"layer.tar"},
	}})
	if err != nil {
		return err
	}
	whole, err := pack(map[string][]byte{"manifest.json": manifest, digest(config) + ".json": config, "layer.tar": layer}, 0o644)
	if err != nil {
		return fmt.Errorf("pack %s: %w", name, err)
	}
	return os.WriteFile(archive, whole, 0o600)
}

func pack(files map[string][]byte, mode int64) ([]byte, error) {
	var out bytes.Buffer
	writer := tar.NewWriter(&out)
	for name, content := range files {
		if err := writer.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(content)), Typeflag: tar.TypeReg}); err != nil {
			return nil, err
		}
		if _, err := writer.Write(content); err != nil {
			return nil, err
		}
	}
	err := writer.Close()
	return out.Bytes(), err
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// library is a line of ldd with a path.
var library = regexp.MustCompile(`(?m)(/\S+) \(0x`)

// libraries are those that a program loads; none if it is static.
func libraries(ctx context.Context, program string) ([]string, error) {
	out, err := exec.CommandContext(ctx, "ldd", program).CombinedOutput()
	if err != nil && !bytes.Contains(out, []byte("not a dynamic executable")) {
		return nil, fmt.Errorf("find the libraries of %s: %w: %s", program, err, out)
	}
	var found []string
	for _, line := range library.FindAllStringSubmatch(string(out), -1) {
		found = append(found, line[1])
	}
	return found, nil
}
