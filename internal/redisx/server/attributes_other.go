//go:build unix && !linux

package server

import "syscall"

// attributes puts the child into its own process group. These systems know no parent-death signal: a child whose parent was
// killed lives on until the next start finds it by its lock and asks it to end.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
