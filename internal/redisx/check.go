package redisx

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// CheckServer tells whether the server (of a cluster: every node) is fit: 6.2 or newer, in the mode that the URL says, and with
// maxmemory-policy noeviction. Call it again after a reconnect: behind the same address another server may stand. Errors that are
// not ErrUnfit pass with time: the server cannot be reached, loads its data, or is a replica that waits for its promotion.
func (r *Redis) CheckServer(ctx context.Context) error {
	if r.child != nil {
		if err := r.child.fault(); err != nil {
			return err
		}
	}
	if cluster, ok := r.Commit.(*redis.ClusterClient); ok {
		err := cluster.ForEachShard(ctx, func(ctx context.Context, node *redis.Client) error {
			_, err := r.checkNode(ctx, node, node.Options().Addr)
			return err
		})
		return r.explain(err)
	}
	role, err := r.checkNode(ctx, r.Commit, r.target.address())
	if err == nil && role != "master" {
		r.dropDemoted(ctx)
		err = fmt.Errorf("the Redis at %s is a replica and takes no writes: name its master in redis.url, or use redis+sentinel://", r.target.address())
	}
	return r.explain(err)
}

// unusedKey never exists.
const unusedKey = "rc:{00}:unused"

// dropDemoted closes the connections to a replica. Its host name may mean the new master by now, but open connections still lead to the
// demoted one and look healthy; the client drops one only when a write on it is refused, so each is given one: a write that changes nothing,
// should the server be a master after all.
func (r *Redis) dropDemoted(ctx context.Context) {
	for range r.Commit.PoolStats().TotalConns {
		if !IsReadOnly(r.Commit.Del(ctx, unusedKey).Err()) {
			break
		}
	}
	if r.target.replicas {
		return // Read may be connected to replicas
	}
	for range r.Read.PoolStats().TotalConns {
		if !IsReadOnly(r.Read.Del(ctx, unusedKey).Err()) {
			break
		}
	}
}

// checkNode checks one server and returns its role: "master" or "slave".
func (r *Redis) checkNode(ctx context.Context, node redis.Cmdable, address string) (role string, err error) {
	text, err := node.Info(ctx).Result()
	if err != nil {
		return "", fmt.Errorf("INFO of the Redis at %s: %w", address, err)
	}
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}

	version := info["redis_version"]
	if fit, err := atLeast(version, 6, 2); err != nil || !fit {
		return "", unfitError{fmt.Sprintf("the Redis at %s has version %q: rollcall needs 6.2 or newer", address, version)}
	}
	if clustered := info["cluster_enabled"] == "1"; clustered && r.target.mode != "cluster" {
		return "", unfitError{fmt.Sprintf("the Redis at %s is a node of a cluster: use redis+cluster:// in redis.url", address)}
	}
	policy := info["maxmemory_policy"]
	if policy == "" { // some services cut INFO short
		config, err := node.ConfigGet(ctx, "maxmemory-policy").Result()
		if IsUnknown(err) {
			return "", fmt.Errorf("CONFIG GET of the Redis at %s: %w", address, err)
		}
		policy = config["maxmemory-policy"]
	}
	switch policy {
	case "noeviction":
	case "":
		return "", unfitError{fmt.Sprintf("the Redis at %s shows its maxmemory-policy neither in INFO memory nor to CONFIG GET: "+
			"rollcall must know that it is noeviction; allow its user one of both", address)}
	default:
		return "", unfitError{fmt.Sprintf("the Redis at %s has maxmemory-policy %s: when memory runs short it would drop counts without a word; "+
			"set noeviction (maxmemory-policy noeviction in redis.conf, or in the service's parameters)", address, policy)}
	}
	r.version.Store(&version)
	return info["role"], nil
}

// explain turns the server's refusals that waiting does not heal into ErrUnfit.
func (r *Redis) explain(err error) error {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return err
	}
	text := reply.Error()
	for _, code := range []string{"WRONGPASS", "NOAUTH", "NOPERM", "ERR AUTH", "ERR invalid password"} {
		if strings.HasPrefix(text, code) {
			return unfitError{fmt.Sprintf("the Redis at %s refuses the login of redis.url (%s): it needs a user that may run INFO, scripts and "+
				"every command on rc:*", r.target.address(), text)}
		}
	}
	if strings.Contains(text, "cluster support disabled") {
		return unfitError{fmt.Sprintf("the Redis at %s is not a cluster: use redis:// in redis.url", r.target.address())}
	}
	return err
}

func atLeast(version string, major, minor int) (bool, error) {
	first, rest, _ := strings.Cut(version, ".")
	second, _, _ := strings.Cut(rest, ".")
	a, err := strconv.Atoi(first)
	if err != nil {
		return false, err
	}
	b, err := strconv.Atoi(second)
	return a > major || (a == major && b >= minor), err
}
