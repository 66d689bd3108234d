package realnode

// This file makes the one image that the node's Pods run: a static program and
// nothing else, in the archive format of `docker save`. No registry is asked.

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
)

// Image runs in every Pod, and as every Pod's sandbox: see package pause for
// what its arguments do. Pods must use it with imagePullPolicy Never or
// IfNotPresent.
const Image = "localhost/sickbay/pause:1"

// writeImage writes an image with the program as /pause and entry point.
func writeImage(archive, program string) error {
	binary, err := os.ReadFile(program)
	if err != nil {
		return fmt.Errorf("make the image: %w", err)
	}
	layer, err := tarOf(file{"pause", binary, 0o755})
	if err != nil {
		return fmt.Errorf("make the image: %w", err)
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config":  map[string]any{"Entrypoint": []string{"/pause"}, "Env": []string{"PATH=/"}},
		"rootfs":  map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + digest(layer)}},
		"history": []map[string]any{{"created_by": "realnode"}},
	})
	if err != nil {
		return fmt.Errorf("make the image: %w", err)
	}
	layerName, configName := digest(layer)+"/layer.tar", digest(config)+".json"
	manifest, err := json.Marshal([]map[string]any{{
		"Config": configName, "RepoTags": []string{Image}, "Layers": []string{layerName},
	}})
	if err != nil {
		return fmt.Errorf("make the image: %w", err)
	}
	whole, err := tarOf(file{"manifest.json", manifest, 0o644}, file{configName, config, 0o644}, file{layerName, layer, 0o644})
	if err != nil {
		return fmt.Errorf("make the image: %w", err)
	}
	if err := os.WriteFile(archive, whole, 0o600); err != nil {
		return fmt.Errorf("make the image: %w", err)
	}
	return nil
}

type file struct {
	name    string
	content []byte
	mode    int64
}

func tarOf(files ...file) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.content)), Typeflag: tar.TypeReg}); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}
