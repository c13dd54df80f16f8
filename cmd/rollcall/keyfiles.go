package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rollcall/rollcall/internal/config"
	"github.com/rollcall/rollcall/internal/project"
)

// Files in the data folder.
const (
	adminName = "admin.key" // opens every project
	writeName = "write.key"
	readName  = "read.key"
	pidName   = "pid" // of the running server
	urlName   = "url" // where the running server answers; for the other subcommands
)

// keyFiles are the keys of a default set-up, "" where there is none.
type keyFiles struct{ admin, write, read string }

// openKeys reads the key files, making those that are missing. The admin key is always there. The write and read keys are there while
// the only project of the configuration lists no keys of its own.
func (n *node) openKeys() (err error) {
	if err := os.MkdirAll(n.c.Data, 0o700); err != nil {
		return err
	}
	if n.keys.admin, err = n.keyFile(adminName, project.Admin); err != nil {
		return err
	}
	if len(n.c.Projects) == 1 && len(n.c.Projects[0].Keys) == 0 {
		if n.keys.write, err = n.keyFile(writeName, project.Write); err == nil {
			n.keys.read, err = n.keyFile(readName, project.Read)
		}
	}
	return err
}

// configured is what a configuration says about projects and keys, with the key files.
func (n *node) configured(c config.Config) (projects []*project.Project, keys []*project.Key, err error) {
	file := func(secret, id string, scope project.Scope) {
		if secret != "" {
			keys = append(keys, &project.Key{ID: project.KeyID(secret), Project: id, Scope: scope, Sum: sha256.Sum256([]byte(secret)), Source: project.FromFile})
		}
	}
	file(n.keys.admin, "", project.Admin)
	if len(c.Projects) == 1 && len(c.Projects[0].Keys) == 0 {
		file(n.keys.write, c.Projects[0].ID, project.Write)
		file(n.keys.read, c.Projects[0].ID, project.Read)
	}
	for _, p := range c.Projects {
		made, err := project.New(p.Spec, project.FromConfig, time.Time{})
		if err != nil {
			return nil, nil, err // Validate has looked at it
		}
		projects = append(projects, made)
		for _, k := range p.Keys {
			key, err := configuredKey(p.ID, k)
			if err != nil {
				return nil, nil, err // likewise
			}
			keys = append(keys, key)
		}
	}
	return projects, keys, nil
}

func configuredKey(id string, k config.Key) (key *project.Key, err error) {
	key = &project.Key{Name: k.Name, Project: id, Source: project.FromConfig}
	if key.Scope, err = project.ParseScope(k.Kind); err != nil {
		return nil, err
	}
	if k.Expires != "" {
		if key.Expires, err = time.Parse(time.RFC3339, k.Expires); err != nil {
			return nil, err
		}
	}
	_, err = hex.Decode(key.Sum[:], []byte(k.SHA256))
	key.ID = project.SumID(key.Sum)
	return key, err
}

// keyFile returns the key in a file of the data folder. A missing file is made, mode 0600, with 200 random bits.
func (n *node) keyFile(name string, scope project.Scope) (string, error) {
	path := filepath.Join(n.c.Data, name)
	for {
		data, err := os.ReadFile(path)
		if err == nil {
			if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o077 != 0 {
				n.log.Warn("others on this machine may read a key file; chmod 600 it", "file", path)
			}
			key := strings.TrimSpace(string(data))
			if !project.WellFormed(key, scope) {
				return "", fmt.Errorf("%s holds no %s… key; remove it to have a new one made", path, scope.Prefix())
			}
			return key, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		if err := newKeyFile(path, project.Generate(scope)); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", err
		}
	}
}

// newKeyFile writes a key so that the file is either whole or not there.
func newKeyFile(path, key string) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".key-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(f.Name())) }()
	_, err = f.WriteString(key + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Link(f.Name(), path) // fails when another process was faster
}
