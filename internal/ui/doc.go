// Package ui serves the web page of "berth ui": the files of the page, and the part of the local API that it uses.
//
// The server listens on the loopback interface only. It owns the links, the sessions and the list of routes that a
// browser may use. For everything else it sends the page's request on to the agent's socket.
//
//	link with a token, valid once --> session cookie --> page, /api (requests), /live (streams)
//	        ^                              |
//	     command                 Host, Origin, Sec-Fetch-Site, cookie are checked for each request
//
// A browser opens few connections to one server at a time. So each lasting stream is a WebSocket: watches, followed
// logs, the usage of pods, and shells in containers.
//
// Export returns the page with the present state as one file. It needs no server and has no secrets (conceal).
package ui
