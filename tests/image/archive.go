package image

// This file reads an archive of an image, as `docker save` writes it.

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// Contents is what an image has.
type Contents struct {
	Config struct {
		Config struct {
			User       string
			Entrypoint []string
			Env        []string
			Labels     map[string]string
		} `json:"config"`
	}
	// RawConfig is all that the image says of itself, its history too.
	RawConfig []byte
	// Files are the files of all layers, by path without the leading slash.
	Files map[string]File
	// Size is that of all files, in bytes.
	Size int64
}

// File is one file of an image.
type File struct {
	Header  tar.Header
	Content []byte
}

// Read reads an archive.
func Read(archive string) (Contents, error) {
	outer, err := os.ReadFile(archive)
	if err != nil {
		return Contents{}, err
	}
	parts, err := untar(outer)
	if err != nil {
		return Contents{}, fmt.Errorf("read %s: %w", archive, err)
	}
	var manifest []struct {
		Config string
		Layers []string
	}
	if err := json.Unmarshal(parts["manifest.json"].Content, &manifest); err != nil {
		return Contents{}, fmt.Errorf("read the manifest of %s: %w", archive, err)
	}
	if len(manifest) != 1 {
		return Contents{}, fmt.Errorf("%s has %d images, want one", archive, len(manifest))
	}
	contents := Contents{RawConfig: parts[manifest[0].Config].Content, Files: map[string]File{}}
	if err := json.Unmarshal(contents.RawConfig, &contents.Config); err != nil {
		return Contents{}, fmt.Errorf("read the configuration of %s: %w", archive, err)
	}
	for _, layer := range manifest[0].Layers {
		// A layer of a docker-archive may be a link to another that is the same.
		files, err := untar(parts[layer].Content)
		if err != nil {
			return Contents{}, fmt.Errorf("read layer %s of %s: %w", layer, archive, err)
		}
		for name, file := range files {
			contents.Files[name] = file
			contents.Size += file.Header.Size
		}
	}
	return contents, nil
}

func untar(archive []byte) (map[string]File, error) {
	files := map[string]File{}
	reader := tar.NewReader(bytes.NewReader(archive))
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		if header.FileInfo().Mode()&fs.ModeDir != 0 {
			continue
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			return nil, err
		}
		files[header.Name] = File{Header: *header, Content: content}
	}
}
