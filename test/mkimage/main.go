// Command mkimage builds the images of the project's test programs and writes them to a directory, as archives for
// "berth image load": workload.tar with the name from the command line, and guestbook.tar. It prints their paths.
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
	if err := build(context.Background(), os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "mkimage:", err)
		os.Exit(1)
	}
}

func build(ctx context.Context, dir, name string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	guestbook, err := image.BuildGuestbook(ctx, dir)
	if err != nil {
		return err
	}
	workload, err := image.Build(ctx, dir, name)
	if err == nil {
		fmt.Println(guestbook)
		fmt.Println(workload)
	}
	return err
}
