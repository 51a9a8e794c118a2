// Package tlstest makes certificates for tests.
package tlstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Authority signs certificates.
type Authority struct {
	t    testing.TB
	leaf *x509.Certificate
	key  *ecdsa.PrivateKey
	PEM  []byte
}

// New returns an authority of its own.
func New(t testing.TB) *Authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	a := &Authority{t: t, key: key}
	a.leaf = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, a.leaf, a.leaf, &key.PublicKey, key)
	require.NoError(t, err)
	a.PEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return a
}

// Pool returns the authority as those that a client or server trusts.
func (a *Authority) Pool() *x509.CertPool {
	p := x509.NewCertPool()
	require.True(a.t, p.AppendCertsFromPEM(a.PEM))
	return p
}

// Sign returns a certificate for servers at 127.0.0.1 and clients of that name, valid for so long from now, and its key.
func (a *Authority) Sign(name string, valid time.Duration) (certificate, key []byte) {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	require.NoError(a.t, err)
	leaf := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(valid), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, a.leaf, &k.PublicKey, a.key)
	require.NoError(a.t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(k)
	require.NoError(a.t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
}

// Pair returns what Sign does, for a tls.Config.
func (a *Authority) Pair(name string, valid time.Duration) tls.Certificate {
	pair, err := tls.X509KeyPair(a.Sign(name, valid))
	require.NoError(a.t, err)
	return pair
}

// Write puts a certificate of that name and its key in a folder, as tls.crt and tls.key, each in one step.
func (a *Authority) Write(folder, name string, valid time.Duration) (certificate, key string) {
	c, k := a.Sign(name, valid)
	return Put(a.t, folder, "tls.crt", c), Put(a.t, folder, "tls.key", k)
}

// Put writes a file of a folder in one step and returns its path.
func Put(t testing.TB, folder, name string, contents []byte) string {
	path := filepath.Join(folder, name)
	require.NoError(t, os.WriteFile(path+".new", contents, 0o600))
	require.NoError(t, os.Rename(path+".new", path))
	return path
}
