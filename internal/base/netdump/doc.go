// Package netdump reads lists of the kernel's network as a whole. It owns nothing.
package netdump
