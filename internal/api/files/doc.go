// Package files reads and writes files of running containers for "berth cp". It owns
// nothing: the files are the containers'.
package files
