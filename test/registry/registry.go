package registry

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Options of a Registry.
type Options struct {
	// TLS makes the registry serve HTTPS with a self-signed certificate.
	TLS bool
	// Unknown makes WriteHosts omit the certificate, so that clients do not know its authority.
	Unknown bool
	// User and Password are required for pulls. If User is empty, everyone may pull.
	User, Password string
	// Token makes clients exchange the password for a token, as large registries do.
	Token bool
}

// Registry is a running registry.
type Registry struct {
	opts   Options
	store  http.Handler
	server *httptest.Server

	mu      sync.Mutex
	fault   Fault
	fetched map[string]int // GETs by path
}

// Fault may answer a request for content instead of the registry, and returns whether it did. next is the registry.
type Fault func(w http.ResponseWriter, r *http.Request, next http.Handler) bool

// New starts a registry, which runs until Close.
func New(o Options) *Registry {
	r := &Registry{opts: o, fetched: map[string]int{}, store: registry.New(registry.Logger(log.New(io.Discard, "", 0)))}
	r.server = httptest.NewUnstartedServer(r)
	r.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	if o.TLS {
		r.server.StartTLS()
	} else {
		r.server.Start()
	}
	return r
}

// Close ends the registry and cuts its connections.
func (r *Registry) Close() {
	r.server.CloseClientConnections()
	r.server.Close()
}

// Host is the registry's address, 127.0.0.1:PORT.
func (r *Registry) Host() string { return r.server.Listener.Addr().String() }

// WriteHosts writes the configuration that containerd needs to reach the registry. dir is containerd's certs.d.
func (r *Registry) WriteHosts(dir string) error {
	host := strings.ReplaceAll(r.Host(), ":", "_") + "_"
	if err := os.MkdirAll(filepath.Join(dir, host), 0o755); err != nil {
		return err
	}
	text := fmt.Sprintf("server = %q\n", r.server.URL)
	if r.opts.TLS && !r.opts.Unknown {
		ca := filepath.Join(dir, host, "ca.crt")
		block := &pem.Block{Type: "CERTIFICATE", Bytes: r.server.Certificate().Raw}
		if err := os.WriteFile(ca, pem.EncodeToMemory(block), 0o644); err != nil {
			return err
		}
		text += fmt.Sprintf("ca = %q\n", ca)
	}
	return os.WriteFile(filepath.Join(dir, host, "hosts.toml"), []byte(text), 0o644)
}

// Inject passes requests for manifests and blobs to a fault first. A nil fault ends that.
func (r *Registry) Inject(f Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fault = f
}

// Fetches is the number of requests for a blob so far.
func (r *Registry) Fetches(digest string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for path, count := range r.fetched {
		if strings.HasSuffix(path, "/blobs/"+digest) {
			n += count
		}
	}
	return n
}

const token = "a-token-of-this-registry"

// ServeHTTP implements http.Handler.
func (r *Registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.URL.Path == "/token" {
		r.issueToken(w, req)
		return
	}
	if !r.authorized(req) {
		challenge := `Basic realm="test"`
		if r.opts.Token {
			challenge = fmt.Sprintf(`Bearer realm="%s/token",service="test"`, r.server.URL)
		}
		w.Header().Set("WWW-Authenticate", challenge)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	r.mu.Lock()
	fault := r.fault
	if req.Method == http.MethodGet {
		r.fetched[req.URL.Path]++
	}
	r.mu.Unlock()
	content := strings.Contains(req.URL.Path, "/manifests/") || strings.Contains(req.URL.Path, "/blobs/")
	if fault != nil && content && fault(w, req, r.store) {
		return
	}
	if content, ok := blob(req, r.store, ""); ok { // the store cannot serve ranges without an end
		serve(w, req, content)
		return
	}
	r.store.ServeHTTP(w, req)
}

func (r *Registry) authorized(req *http.Request) bool {
	if r.opts.User == "" {
		return true
	}
	if r.opts.Token {
		return req.Header.Get("Authorization") == "Bearer "+token
	}
	user, password, _ := req.BasicAuth()
	return user == r.opts.User && password == r.opts.Password
}

func (r *Registry) issueToken(w http.ResponseWriter, req *http.Request) {
	user, password, ok := req.BasicAuth()
	if !ok { // OAuth2, RFC 6749 4.3
		user, password = req.PostFormValue("username"), req.PostFormValue("password")
	}
	if user != r.opts.User || password != r.opts.Password {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]string{"token": token, "access_token": token})
}

// put stores content directly, without the server's faults and counts.
func (r *Registry) put(method, path, mediaType string, content []byte) error {
	req := httptest.NewRequestWithContext(context.Background(), method, path, bytes.NewReader(content))
	req.Header.Set("Content-Type", mediaType)
	w := httptest.NewRecorder()
	r.store.ServeHTTP(w, req)
	if w.Code != http.StatusCreated {
		return fmt.Errorf("%s %s: %d %s", method, path, w.Code, w.Body)
	}
	return nil
}

// Push stores an image with these layers, the lowest first, as HOST/repository. It returns the full name.
func (r *Registry) Push(repository string, layers ...v1.Layer) (string, error) {
	image, err := mutate.AppendLayers(empty.Image, layers...)
	if err != nil {
		return "", err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return "", err
	}
	config = config.DeepCopy()
	config.Architecture, config.OS = runtime.GOARCH, "linux"
	config.Config.Entrypoint = []string{"/workload"}
	config.Config.Env = []string{"PATH=/"}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return "", err
	}
	return r.push(repository, image)
}

// PushArchive stores the image of a docker-archive as HOST/repository. It returns the full name.
func (r *Registry) PushArchive(repository, path string) (string, error) {
	image, err := tarball.ImageFromPath(path, nil)
	if err != nil {
		return "", err
	}
	return r.push(repository, image)
}

func (r *Registry) push(repository string, image v1.Image) (string, error) {
	repository, tag, _ := strings.Cut(repository, ":")
	layers, err := image.Layers()
	if err != nil {
		return "", err
	}
	for _, layer := range layers {
		packed, err := layer.Compressed()
		if err != nil {
			return "", err
		}
		content, err := io.ReadAll(packed)
		if err != nil {
			return "", err
		}
		if err := r.putBlob(repository, content); err != nil {
			return "", err
		}
	}
	config, err := image.RawConfigFile()
	if err == nil {
		err = r.putBlob(repository, config)
	}
	if err != nil {
		return "", err
	}
	manifest, err := image.RawManifest()
	if err != nil {
		return "", err
	}
	mediaType, err := image.MediaType()
	if err != nil {
		return "", err
	}
	return r.Host() + "/" + repository + ":" + tag,
		r.put(http.MethodPut, "/v2/"+repository+"/manifests/"+tag, string(mediaType), manifest)
}

func (r *Registry) putBlob(repository string, content []byte) error {
	return r.put(http.MethodPost,
		fmt.Sprintf("/v2/%s/blobs/uploads/?digest=sha256:%x", repository, sha256.Sum256(content)),
		"application/octet-stream", content)
}

// Layer is a layer with these tar entries. A regular file has its content in PAXRecords["content"]; the layer has no
// such record.
func Layer(entries ...tar.Header) (v1.Layer, error) {
	var plain bytes.Buffer
	w := tar.NewWriter(&plain)
	for _, e := range entries {
		content := e.PAXRecords["content"]
		e.PAXRecords, e.Size = nil, int64(len(content))
		if err := w.WriteHeader(&e); err != nil {
			return nil, err
		}
		if _, err := io.WriteString(w, content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(plain.Bytes())), nil
	})
}

// Random is a layer with one file. The file has size bytes, which do not compress and are the same every time.
func Random(file string, size int) (v1.Layer, error) {
	content := make([]byte, 0, size+sha256.Size)
	sum := sha256.Sum256([]byte(file))
	for len(content) < size {
		sum = sha256.Sum256(sum[:])
		content = append(content, sum[:]...)
	}
	return Layer(tar.Header{Name: file, Mode: 0o644, PAXRecords: map[string]string{"content": string(content[:size])}})
}

// Bomb is a layer of some kilobytes that unpacks to a file of size zero bytes.
func Bomb(size int64) (v1.Layer, error) {
	var packed bytes.Buffer
	zip, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	w := tar.NewWriter(zip)
	if err := w.WriteHeader(&tar.Header{Name: "zeros", Mode: 0o644, Size: size}); err != nil {
		return nil, err
	}
	if _, err := io.CopyN(w, zeros{}, size); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	if err := zip.Close(); err != nil {
		return nil, err
	}
	return static.NewLayer(packed.Bytes(), types.DockerLayer), nil
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
