// Package pages gives memory of this program's own file back to the kernel.
package pages
