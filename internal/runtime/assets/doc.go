// Package assets has the programs that hack/assets.sh builds and the binary carries: NAME.zst files and their checksums
// in SHA256SUMS. Package program installs the programs of the embedded runtime.
package assets
