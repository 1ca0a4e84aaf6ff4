module github.com/berth-run/berth/tools/webui

go 1.26.6

require github.com/evanw/esbuild v0.28.2

require golang.org/x/sys v0.0.0-20220715151400-c0bba94af5f8 // indirect
