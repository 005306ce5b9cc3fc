# shop_018 is in review: its worker was killed in a step that counts as sensitive.
leasehold exec --profile shop_018 --create --task task_101 -- sh -c '
  curl -sf -H "Content-Type: application/json" -d "{\"lease_token\": $LEASEHOLD_TOKEN, \"name\": \"pay\", \"sensitive\": true}" \
    "$LEASEHOLD_URL/v1/sessions/$LEASEHOLD_SESSION/steps" && kill -9 $$' || true
# the snippet
