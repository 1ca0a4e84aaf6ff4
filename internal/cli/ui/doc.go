// Package ui contains the command "berth ui", which shows the node as a web page. Package internal/ui is its server.
package ui
