package main

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/rollcall/rollcall/internal/project"
	"github.com/rollcall/rollcall/web/api"
)

// Files in the data folder.
const (
	adminName = "admin.key" // opens every project
	writeName = "write.key"
	readName  = "read.key"
	urlName   = "url" // where the running server answers; for the other subcommands
)

// keyFiles are the keys of a default set-up, "" where there is none.
type keyFiles struct{ admin, write, read string }

var scopes = map[string]api.Scope{"write": api.Write, "read": api.Read, "admin": api.Admin}

// openKeys reads the key files, making those that are missing, and adds the keys of the configuration. The admin key is always
// there. The write and read keys are there while the only project lists no keys of its own.
func (n *node) openKeys(projects []project.Project) (*api.Keyring, error) {
	if err := os.MkdirAll(n.c.Data, 0o700); err != nil {
		return nil, err
	}
	var err error
	if n.keys.admin, err = n.keyFile(adminName, "rca_"); err != nil {
		return nil, err
	}
	keys := []api.Key{{Sum: sha256.Sum256([]byte(n.keys.admin)), Scope: api.Admin}}
	if len(n.c.Projects) == 1 && len(n.c.Projects[0].Keys) == 0 {
		if n.keys.write, err = n.keyFile(writeName, "rcw_"); err != nil {
			return nil, err
		}
		if n.keys.read, err = n.keyFile(readName, "rcr_"); err != nil {
			return nil, err
		}
		id := n.c.Projects[0].ID
		keys = append(keys,
			api.Key{Sum: sha256.Sum256([]byte(n.keys.write)), Scope: api.Write, Project: id},
			api.Key{Sum: sha256.Sum256([]byte(n.keys.read)), Scope: api.Read, Project: id})
	}
	for _, p := range n.c.Projects {
		for _, k := range p.Keys {
			key := api.Key{Scope: scopes[k.Kind], Project: p.ID}
			if _, err := hex.Decode(key.Sum[:], []byte(k.SHA256)); err != nil {
				return nil, err // Validate has looked at it
			}
			keys = append(keys, key)
		}
	}
	return api.NewKeyring(projects, keys), nil
}

// keyFile returns the key in a file of the data folder. A missing file is made, mode 0600, with 200 random bits.
func (n *node) keyFile(name, prefix string) (string, error) {
	path := filepath.Join(n.c.Data, name)
	for {
		data, err := os.ReadFile(path)
		if err == nil {
			if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o077 != 0 {
				n.log.Warn("others on this machine may read a key file; chmod 600 it", "file", path)
			}
			key := strings.TrimSpace(string(data))
			if !strings.HasPrefix(key, prefix) || len(key) < len(prefix)+20 || len(key) > 100 {
				return "", fmt.Errorf("%s holds no %s… key; remove it to have a new one made", path, prefix)
			}
			return key, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		if err := newKeyFile(path, prefix+(rand.Text() + rand.Text())[:40]); err != nil && !errors.Is(err, fs.ErrExist) {
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
