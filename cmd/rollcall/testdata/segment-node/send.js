// Sends N track, N page and N identify calls of USERS users and prints what the client says became of them.
// node send.js HOST WRITE_KEY N USERS
const { Analytics } = require('@segment/analytics-node')

const [host, writeKey, n, users] = process.argv.slice(2)

const client = new Analytics({ host, writeKey, flushAt: 40, flushInterval: 200, maxRetries: 1000 })
const told = { delivered: 0, failed: 0, retries: 0 }
client.on('error', (err) => console.error(err))
client.on('http_request', (r) => { if (r.headers['X-Retry-Count']) told.retries++ })

const delivered = (err) => { if (err) told.failed++; else told.delivered++ }

async function main () {
  for (let i = 0; i < Number(n); i++) {
    const userId = `n${i % Number(users)}`
    client.track({ userId, event: 'Node Order', properties: { revenue: 1.5, cart: { items: [1, 2], id: `c${i}` } } }, delivered)
    client.page({ anonymousId: userId, name: 'Book', properties: { path: `/book/${i % 7}`, url: `https://shop.example/book/${i % 7}?q=1` } }, delivered)
    client.identify({ userId, traits: { plan: 'pro' } }, delivered)
    if (i % 50 === 49) await new Promise((resolve) => setTimeout(resolve, 5))
  }
  await client.closeAndFlush({ timeout: 120000 })
  console.log(JSON.stringify(told))
}

main().catch((err) => { console.error(err); process.exit(1) })
