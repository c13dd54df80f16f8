// Package project is who may do what: projects with their settings, the keys that open them, and the directory in which a request's
// key is looked up.
package project

import "time"

// Project is one tenant.
type Project struct {
	ID         string
	Zone       *time.Location // whose calendar its days follow; never changes
	LateWindow time.Duration  // 0 = ingest's default
}
