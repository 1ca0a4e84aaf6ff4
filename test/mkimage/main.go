// Command mkimage builds the image of the project's workload program and writes it to a directory, as an archive for
// "berth image load". It prints the archive's path.
//
//	mkimage DIR NAME
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/berth-run/berth/test/image"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: mkimage DIR NAME")
		os.Exit(2)
	}
	if err := os.MkdirAll(os.Args[1], 0o755); err != nil {
		fmt.Fprintln(os.Stderr, "mkimage:", err)
		os.Exit(1)
	}
	path, err := image.Build(context.Background(), os.Args[1], os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, "mkimage:", err)
		os.Exit(1)
	}
	fmt.Println(path)
}
