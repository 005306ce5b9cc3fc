# A session of shop_018 that has ended.
leasehold exec --profile shop_018 --create --task task_101 -- true
# the snippet
