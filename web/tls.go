package web

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// TLSConfig serves the certificate in two PEM files, and reads them again, at most every ten seconds, when one has changed: a renewed
// certificate needs no restart. While a new pair can't be read the old one is served.
func TLSConfig(certFile, keyFile string, log *slog.Logger) (*tls.Config, error) {
	c := &certificate{certFile: certFile, keyFile: keyFile, log: log}
	if err := c.load(); err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}, GetCertificate: c.get}, nil
}

const certEvery = 10 * time.Second

type certificate struct {
	certFile, keyFile string
	log               *slog.Logger

	mu      sync.Mutex
	looked  time.Time
	version [2]time.Time
	pair    *tls.Certificate
}

func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.looked) >= certEvery {
		if version, err := c.modified(); err != nil || version != c.version {
			if err := c.load(); err != nil {
				c.log.Error("the certificate can't be read again; the old one is served", "err", err)
			} else {
				c.log.Info("certificate read again", "file", c.certFile)
			}
		}
	}
	return c.pair, nil
}

func (c *certificate) modified() (version [2]time.Time, err error) {
	for i, file := range []string{c.certFile, c.keyFile} {
		info, err := os.Stat(file)
		if err != nil {
			return version, err
		}
		version[i] = info.ModTime()
	}
	return version, nil
}

func (c *certificate) load() error {
	c.looked = time.Now()
	version, err := c.modified()
	if err != nil {
		return fmt.Errorf("tls: %w", err)
	}
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return fmt.Errorf("tls.cert %s and tls.key %s: %w", c.certFile, c.keyFile, err)
	}
	c.pair, c.version = &pair, version
	return nil
}
