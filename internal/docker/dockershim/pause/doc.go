// Package pause has the image of pause containers.
//
// It owns that image in the Engine: Berth's own, which needs no registry and is loaded when it is missing, or a
// configured one, which is pulled.
package pause
