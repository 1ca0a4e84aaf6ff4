// Package capability reads which capabilities this process has, see capabilities(7). It keeps no state.
package capability
