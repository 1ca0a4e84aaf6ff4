// Package node answers the calls of the CRI that concern the Docker Engine as a whole: its version, its health and its
// configuration. It owns a copy of the Engine's info, which is at most half a minute old.
package node
