package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/berth-run/berth/internal/node/machine/machinetest"
)

func main() {
	root := flag.String("root", "/", "the directory that holds sys and proc")
	flag.Parse()
	packed, err := machinetest.Pack(os.DirFS(*root))
	if err == nil {
		_, err = os.Stdout.Write(packed)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "snapshot:", err)
		os.Exit(1)
	}
}
