# A user-data-dir that can be imported and a shop_018 that nobody uses.
mkdir -p ~/.config/chromium/Default
echo '{}' >~/.config/chromium/Default/Preferences
echo '{}' >~/.config/chromium/'Local State'
until leasehold profiles | grep -q '^shop_018 *available'; do sleep 0.2; done
# the snippet
