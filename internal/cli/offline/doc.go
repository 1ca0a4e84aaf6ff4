// Package offline answers commands on a root directory without an agent. It serves the local API inside the command's
// own process, from the files of the root directory. It holds the directory's lock, so that no agent starts there
// meanwhile.
package offline
